module go.temporal.io/auto-scaled-workers

go 1.26.8

require (
	go.temporal.io/api v1.64.1
	go.temporal.io/server v1.32.1
	go.uber.org/fx v1.24.0
)
