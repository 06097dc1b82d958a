// Package workercomponent replaces the workflows of Temporal's serverless workers, which are left out of the local
// server.
package workercomponent

import "go.uber.org/fx"

// Module registers nothing.
var Module = fx.Options()
