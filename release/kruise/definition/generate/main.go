// Command generate adds the rules to the definition of Rollouts that controller-gen has written.
package main

import (
	"fmt"
	"os"

	"slipway.io/slipway/release/kruise/definition"
)

func main() {
	if err := complete(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "definition:", err)
		os.Exit(1)
	}
}

func complete(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if text, err = definition.Complete(text); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}
