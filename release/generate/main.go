// Command generate writes a manifest that is generated from release/: the policies of the guard, those for Rollouts, or
// the rules in the definition of Rollouts that controller-gen has written. The comment at the head of the file stays.
package main

import (
	"bytes"
	"fmt"
	"os"

	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise/admission"
	"slipway.io/slipway/release/kruise/definition"
)

func main() {
	if err := generate(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func generate(what, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	head, _, _ := bytes.Cut(text, []byte("---\n"))
	var body []byte
	switch what {
	case "guard":
		body, err = guard.YAML(guard.Policies(guard.Options{}, "v1", "v1"))
	case "rollouts":
		body, err = guard.YAML(admission.Policies())
	case "definition":
		body, err = definition.Complete(text)
	default:
		err = fmt.Errorf("unknown manifest %q", what)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(head[:len(head):len(head)], body...), 0o644)
}
