// Package workercomponent replaces the workflows of Temporal's serverless workers, which the local server leaves out.
package workercomponent

import "go.uber.org/fx"

// Module registers nothing.
var Module = fx.Options()
