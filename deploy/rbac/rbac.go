// Package rbac carries what the centre is granted, so that a process can tell what of it its account lacks.
package rbac

import _ "embed"

// Centre is what all processes of the centre are granted.
//
//go:embed centre.yaml
var Centre []byte

// Rollouts is what an engine is granted besides that looks after Rollout objects.
//
//go:embed rollouts.yaml
var Rollouts []byte
