#pragma once

#include <memory>

#include "config/launch_config.hpp"
#include "lockstep/core/environment.hpp"
#include "rendezvous/coordinator_client.hpp"
#include "rendezvous/job_secret.hpp"

namespace lockstep::launch {

/// Creates the client of the job's coordinator. If this node hosts the coordinator, it is started here;
/// otherwise the client connects to the endpoint in the background (see RemoteCoordinatorClient).
///
/// The host is the only node of a job; node rank 0 of a static rendezvous; for c10d the first launcher on the
/// host that the endpoint names (--rdzv-conf is_host, if that cannot be determined); for slurm the first node
/// of the step. It listens on the endpoint's own address only, which is loopback if the whole job is on one
/// host. It listens on every interface if the endpoint's name means loopback on this host only, or none of
/// its addresses, or if --local-addr is a different address.
///
/// Throws UsageError or CommunicationError that says what to change: a port in use and by which program, a
/// name that does not resolve. Starts threads, so the ProcessSupervisor must exist before. A signal that ends
/// the job also ends the name lookup; the agent then handles the signal.
std::unique_ptr<CoordinatorClient> open_coordinator(const LaunchConfig& config, const JobSecret& secret);

/// The secret of the job. Throws UsageError.
JobSecret secret_for(const LaunchConfig& config, const Environment& environment);

}  // namespace lockstep::launch
