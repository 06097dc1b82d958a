package main

import (
	"github.com/spf13/cobra"

	"slipway.io/slipway/cli/settings"
)

func devCommand() *cobra.Command {
	return engineCommand(&cobra.Command{
		Use:   "dev",
		Short: "Server and worker in one process",
		Long: `Server and worker in one process, against a cluster and a Temporal server that are there already.
It installs the custom resource definitions unless told otherwise.` + settingsHelp,
		Example: `  slipway dev --kubeconfig ~/.kube/config --temporal-address 127.0.0.1:7233`,
	}, settings.Dev, runDev)
}
