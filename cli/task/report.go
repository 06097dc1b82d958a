package task

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
)

func reportCommand(a *app.App) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "report ID",
		Short: "Print a task's report, with the plan that takes it back",
		Long: `Print a task's report as Markdown: each service with its state, its time and what was done to which workload, who decided
what, and at the end the plan that would restore what was released. With -o json or yaml the same for programs.`,
		Args:              app.ExactName("a task", "ID"),
		ValidArgsFunction: a.Complete(app.TaskIDs()),
		RunE:              func(c *cobra.Command, args []string) error { return report(a, c, args[0], output) },
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	return command
}

func report(a *app.App, c *cobra.Command, id, output string) error {
	api, err := app.Connect(c)
	if err != nil {
		return err
	}
	format := client.ReportFormatMarkdown
	if output != app.Table {
		format = client.ReportFormatJSON
	}
	response, err := api.GetTaskReport(c.Context(), id, &client.GetTaskReportParams{Format: &format})
	if output != app.Table {
		report, err := apiclient.Read[map[string]any](response, err)
		if err != nil {
			return err
		}
		_, err = a.PrintObject(output, report.Raw)
		return err
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return &apiclient.UnreachableError{Address: response.Request.URL.Host, Cause: err}
	}
	a.Printf(a.Out, "%s\n", strings.TrimRight(string(text), "\n"))
	return nil
}
