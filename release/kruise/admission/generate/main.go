// Command generate writes the policies for Rollouts: those of deploy/rollouts.
package main

import (
	"fmt"
	"os"

	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise/admission"
)

const head = `# Admission policies for Rollouts, as an engine installs them with their definition (--install-crds). Generated from
# release/kruise/admission.
#
# They need Kubernetes 1.30. Apply them behind the definition of Rollouts, and delete them before it.
`

func main() {
	body, err := guard.YAML(admission.Policies())
	if err == nil {
		err = os.WriteFile(os.Args[1], append([]byte(head), body...), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "admission:", err)
		os.Exit(1)
	}
}
