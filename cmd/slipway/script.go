package main

import (
	"github.com/spf13/cobra"

	"slipway.io/slipway/activities/traffic/scriptbox"
)

// scriptCommand is the process in which a worker runs one Lua script of a traffic provider. It is no command for people.
func (a *app) scriptCommand() *cobra.Command {
	return &cobra.Command{
		Use: scriptbox.Argument, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if code := scriptbox.Child(a.in, a.out); code != 0 {
				return &exitError{code: code}
			}
			return nil
		},
	}
}
