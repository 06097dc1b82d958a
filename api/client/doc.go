// Package client is the Go client of Slipway's HTTP API, generated from api/openapi.yaml. Errors of the API come as
// Problem.
package client

//go:generate oapi-codegen --config oapi-client.yaml ../openapi.yaml
