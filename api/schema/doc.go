// Package schema has the types of api/openapi.yaml as the server reads and writes them: bodies, parameters and
// enumerations.
package schema

//go:generate oapi-codegen --config oapi-schema.yaml ../openapi.yaml
