// Package rbac embeds the permissions of the processes of the centre, so that each can report which of them its account
// lacks.
package rbac

import _ "embed"

// Server holds the permissions of servers.
//
//go:embed server.yaml
var Server []byte

// ByServer holds the additional permissions of servers that write their webhooks or the definitions themselves.
//
//go:embed by-server.yaml
var ByServer []byte

// Centre holds the permissions of workers of the centre.
//
//go:embed centre.yaml
var Centre []byte

// Rollouts holds the additional permissions of workers of an engine that serves Rollout objects.
//
//go:embed rollouts.yaml
var Rollouts []byte
