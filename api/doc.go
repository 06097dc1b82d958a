// Package api is Slipway's HTTP API. openapi.yaml is its source: server.gen.go, the package schema and the package
// client are generated from it. Each resource has its own package (plans, rollouts, servings, parties,
// trafficroutings), which this package combines; the packages start, stream, input, answer, problem and backend
// hold shared code.
//
// The API decides nothing about a release: release/plan validates plans, tasks run as Temporal workflows, and the home
// cluster holds declared objects and records.
package api
