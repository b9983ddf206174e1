#include "route/membership.h"

#include <algorithm>

namespace headrace {

Membership::Applied Membership::apply(const MemberListing& listing) {
  if (listing.source == source_ && listing.revision < revision_) return Applied::kOlder;
  source_ = listing.source;
  revision_ = listing.revision;
  // Of two entries of one address the later is true: a life before may have left its own.
  std::map<Address, MemberListing::Member> named;
  for (const MemberListing::Member& member : listing.members) {
    const auto [entry, is_new] =
        named.try_emplace(Address(member.target.host, member.target.port), member);
    if (!is_new) entry->second.life = std::max(entry->second.life, member.life);
  }
  for (const auto& [_, member] : named) take(member);
  std::erase_if(members_, [&](const auto& each) {
    const auto& [address, member] = each;
    if (named.contains(address) || is_kept(member, named.empty())) return false;
    if (member.own) table_.remove(member.id);
    return true;
  });
  return Applied::kNow;
}

void Membership::take(const MemberListing::Member& member) {
  const Address address(member.target.host, member.target.port);
  const auto known = members_.find(address);
  if (known == members_.end() || !table_.has(known->second.id)) {
    const bool own = !table_.find(address.first, address.second).has_value();
    members_[address] = {.id = table_.add(member.target), .life = member.life, .own = own};
    return;
  }
  if (std::exchange(known->second.life, member.life) == member.life) return;
  table_.report(known->second.id, {.health = WorkerReport::Health::kUnreachable});
}

bool Membership::is_kept(const Member& member, bool nobody_is_named) const {
  return nobody_is_named && table_.answers(member.id);
}

}  // namespace headrace
