// Package crds carries the custom resource definitions of API group slipway.io, generated from release/v1alpha1.
package crds

import "embed"

// Files holds one definition per file.
//
//go:embed *.yaml
var Files embed.FS
