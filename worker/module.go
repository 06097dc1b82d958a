package worker

import "go.uber.org/fx"

// Module runs a fleet for as long as the process lives. It needs a Temporal client, the queues and the options.
var Module = fx.Module("worker",
	fx.Provide(newFleet),
	fx.Invoke(func(lc fx.Lifecycle, fleet *Fleet) {
		lc.Append(fx.Hook{OnStart: fleet.start, OnStop: fleet.stop})
	}),
)
