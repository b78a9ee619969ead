#include "runtime/transport/ucx_handle.h"

namespace perdure::runtime::transport {

base::Status ucx_status(ucs_status_t code, const std::string& what) {
  const std::string text = what + ": " + ucs_status_string(code);
  switch (code) {
    case UCS_OK:
      return base::Status::ok();
    case UCS_ERR_CANCELED:
      return base::cancelled(text);
    case UCS_ERR_MESSAGE_TRUNCATED:
      return base::data_loss(text);
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
      return base::resource_exhausted(text);
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
      return base::invalid_argument(text);
    default:
      return base::unavailable(text);
  }
}

base::Result<std::unique_ptr<UcxPort>> make_ucx_port(const UcxPortOptions& options) {
  ucp_config_t* raw_config = nullptr;
  RETURN_IF_ERROR(ucx_status(ucp_config_read(nullptr, nullptr, &raw_config), "UCX configuration"));
  const UcxConfig config(raw_config);
  const bool tcp = options.transport == UcxTransport::kTcp;
  RETURN_IF_ERROR(
      ucx_status(ucp_config_modify(config.get(), "TLS", tcp ? "tcp" : "posix"), "UCX TLS"));
  if (tcp) {
    RETURN_IF_ERROR(
        ucx_status(ucp_config_modify(config.get(), "NET_DEVICES", options.network_device.c_str()),
                   "UCX NET_DEVICES"));
  }

  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  RETURN_IF_ERROR(ucx_status(ucp_init(&params, config.get(), &context), "UCX context"));
  auto port = std::make_unique<UcxPort>();
  port->context.reset(context);

  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS;
  worker_params.thread_mode =
      UCS_THREAD_MODE_SERIALIZED;  // made anywhere, driven by the comm thread
  worker_params.events = UCP_WAKEUP_TX | UCP_WAKEUP_RX;
  ucp_worker_h worker = nullptr;
  RETURN_IF_ERROR(
      ucx_status(ucp_worker_create(port->context.get(), &worker_params, &worker), "UCX worker"));
  port->worker.reset(worker);

  ucp_address_t* address = nullptr;
  size_t length = 0;
  RETURN_IF_ERROR(
      ucx_status(ucp_worker_get_address(port->worker.get(), &address, &length), "UCX address"));
  const auto* bytes = reinterpret_cast<const std::byte*>(address);
  port->address.assign(bytes, bytes + length);
  ucp_worker_release_address(port->worker.get(), address);
  return port;
}

}  // namespace perdure::runtime::transport
