// Command generate writes the default policies of the guard: those of deploy/guard.
package main

import (
	"fmt"
	"os"

	"slipway.io/slipway/release/guard"
)

func main() {
	text, err := guard.Manifest()
	if err == nil {
		err = os.WriteFile(os.Args[1], text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "guard:", err)
		os.Exit(1)
	}
}
