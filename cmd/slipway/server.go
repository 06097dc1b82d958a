package main

import (
	"github.com/spf13/cobra"

	"slipway.io/slipway/cli/settings"
)

func serverCommand() *cobra.Command {
	return engineCommand(&cobra.Command{
		Use:   "server",
		Short: "Serve the HTTP API",
		Long: `Serve the HTTP API. It starts and steers releases; workers carry them out, so at least one has to run as well.
Any number of servers may run side by side: they keep nothing of their own.` + settingsHelp,
	}, settings.Server, runServer)
}
