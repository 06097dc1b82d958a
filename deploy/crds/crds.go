// Package crds embeds the custom resource definitions that the engine needs, most of them generated from the types in
// release.
package crds

import "embed"

// Files holds one definition per file.
//
//go:embed *.yaml
var Files embed.FS
