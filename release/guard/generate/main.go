// Command generate writes the generated admission policies: the guard's by default (deploy/guard), and those for Rollouts
// (deploy/rollouts).
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise/admission"
)

const rolloutsHead = `# Admission policies for Rollouts, as an engine installs them with their definition (--install-crds). Generated from
# release/kruise/admission.
#
# They need Kubernetes 1.30. Apply them behind the definition of Rollouts, and delete them before it.
`

func main() {
	text, err := guard.Manifest()
	write("guard", text, err)
	body, err := guard.YAML(admission.Policies())
	write("rollouts", append([]byte(rolloutsHead), body...), err)
}

// write writes policies.yaml in a folder of deploy, which is the argument.
func write(folder string, text []byte, err error) {
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Args[1], folder, "policies.yaml"), text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "policies of "+folder+":", err)
		os.Exit(1)
	}
}
