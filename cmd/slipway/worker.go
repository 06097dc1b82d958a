package main

import (
	"github.com/spf13/cobra"

	"slipway.io/slipway/cli/settings"
)

func workerCommand() *cobra.Command {
	return engineCommand(&cobra.Command{
		Use:   "worker",
		Short: "Carry releases out",
		Long: `Carry releases out. A worker needs Temporal and the cluster that it works on, and connects outwards only.
With --party it serves only that party's queue, with that party's kubeconfig.` + settingsHelp,
	}, settings.Worker, runWorker)
}
