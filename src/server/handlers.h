// The handlers behind the route table (router.cc), one file per concern.
#pragma once

#include "server/router.h"

namespace headrace {

// status_handlers.cc
void handle_health(RouteCall& call);
void handle_metrics(RouteCall& call);
void handle_version(RouteCall& call);
void handle_load(RouteCall& call);
void handle_models(RouteCall& call);
void handle_model(RouteCall& call);

// generation_handlers.cc
void handle_completions(RouteCall& call);
void handle_chat_completions(RouteCall& call);

// text_handlers.cc
void handle_tokenize(RouteCall& call);
void handle_detokenize(RouteCall& call);
void handle_apply_template(RouteCall& call);

// pin_handlers.cc
void handle_pins(RouteCall& call);
void handle_delete_pin(RouteCall& call);

// file_handlers.cc
void handle_upload_file(RouteCall& call);
void handle_files(RouteCall& call);
void handle_file(RouteCall& call);
void handle_file_content(RouteCall& call);
void handle_delete_file(RouteCall& call);

// batch_handlers.cc
void handle_create_batch(RouteCall& call);
void handle_batches(RouteCall& call);
void handle_batch(RouteCall& call);
void handle_cancel_batch(RouteCall& call);

// For all of them: 200 with a JSON body.
void respond_json(RouteCall& call, const Json& body);
// 404 for a model that is not served; `model` may be empty.
Status check_model_name(const ReadyModel& model, const std::string& name);

}  // namespace headrace
