// Package rbac embeds the permissions of the centre, so that a process can report which of them its account lacks.
package rbac

import _ "embed"

// Centre holds the permissions of all processes of the centre.
//
//go:embed centre.yaml
var Centre []byte

// Rollouts holds the additional permissions of an engine that serves Rollout objects.
//
//go:embed rollouts.yaml
var Rollouts []byte
