// Package api is Slipway's HTTP front door (design §8.1). openapi.yaml is its source: server.gen.go and the package client are generated from
// it, the handlers here answer it, one file for each resource, and problem.go and errors.go turn every error into an RFC 9457 problem.
//
// The front door decides nothing about a release: plans are judged by release/plan, tasks run as Temporal workflows, and what is declared or
// past is in the home cluster.
package api
