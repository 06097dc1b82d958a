package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
)

func (a *app) taskReportCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "report ID",
		Short: "Print a task's report, with the plan that takes it back",
		Long: `Print a task's report as Markdown: each service with its state, its time and what was done to which workload, who decided
what, and at the end the plan that would restore what was released. With -o json or yaml the same for programs.`,
		Args:              exactName("a task", "ID"),
		ValidArgsFunction: a.complete(taskIDs()),
		RunE:              func(c *cobra.Command, args []string) error { return a.report(c, args[0], output) },
	}
	clientFlags(command)
	outputFlag(command, &output)
	return command
}

func (a *app) report(c *cobra.Command, id, output string) error {
	api, err := connect(c)
	if err != nil {
		return err
	}
	format := client.ReportFormatMarkdown
	if output != outputTable {
		format = client.ReportFormatJSON
	}
	response, err := api.GetTaskReport(c.Context(), id, &client.GetTaskReportParams{Format: &format})
	if output != outputTable {
		report, err := read[map[string]any](response, err)
		if err != nil {
			return err
		}
		_, err = a.printObject(output, report.raw)
		return err
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return &unreachableError{address: response.Request.URL.Host, cause: err}
	}
	a.printf(a.out, "%s\n", strings.TrimRight(string(text), "\n"))
	return nil
}
