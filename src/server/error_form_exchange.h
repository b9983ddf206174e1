// For a route whose body says whose words its errors have, where the path does not.
#pragma once

#include <memory>
#include <utility>

#include "server/error_response.h"
#include "server/exchange.h"

namespace headrace {

class ErrorFormExchange final : public ForwardingExchange {
 public:
  ErrorFormExchange(ErrorForm form, std::shared_ptr<Exchange> exchange)
      : ForwardingExchange(std::move(exchange)), form_(form) {}

  void respond(HttpResponse response) override {
    put_in_form(form_, response);
    ForwardingExchange::respond(std::move(response));
  }

 private:
  const ErrorForm form_;
};

// The same exchange, whose errors have that form.
inline std::shared_ptr<Exchange> in_error_form(ErrorForm form, std::shared_ptr<Exchange> exchange) {
  return std::make_shared<ErrorFormExchange>(form, std::move(exchange));
}

}  // namespace headrace
