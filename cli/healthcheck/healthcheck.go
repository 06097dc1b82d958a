// Package healthcheck asks a server or worker whether it is ready.
package healthcheck

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
)

// The bounds of a check, and what it says of an answer that it cannot read.
const (
	exampleHealthURL   = "http://127.0.0.1:8080/readyz"
	healthTimeout      = 5 * time.Second
	healthAnswerBytes  = 64 << 10
	UnreadableResponse = "its answer is no report of readiness"
)

// Command is for containers: the image has no shell and no other HTTP client.
func Command(a *app.App) *cobra.Command {
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "healthcheck [URL]",
		Short: "Ask a server or worker whether it is ready",
		Long: `Ask a server or worker whether it is ready, for the health checks of containers. The exit code is 0 when the URL
answers with a status from 200 to 299, and 1 otherwise; what is missing is then written to the error output.
Without a URL it asks the engine that --api or SLIPWAY_API names, ` + exampleHealthURL + ` by default.
It needs no token.`,
		Example: `  slipway healthcheck
  slipway healthcheck http://127.0.0.1:9090/readyz   # a worker with --metrics-listen 127.0.0.1:9090`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			values, err := app.LoadSettings(c)
			if err != nil {
				return err
			}
			encryption, err := apiclient.TLS(values)
			if err != nil {
				return err
			}
			address := strings.TrimRight(values.API, "/") + "/readyz"
			if len(args) == 1 {
				address = args[0]
			}
			if err := checkHealthURL(address, timeout); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), timeout)
			defer cancel()
			status, err := askHealth(ctx, address, encryption)
			if err != nil {
				return err
			}
			a.Printf(a.Out, "%s: %s\n", address, status)
			return nil
		},
	}
	app.ClientFlags(command)
	command.Flags().DurationVar(&timeout, "timeout", healthTimeout, "how long the answer may take")
	return command
}

func checkHealthURL(address string, timeout time.Duration) error {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" || (parsed.Scheme != "http" && parsed.Scheme != "https") {
		return app.Usagef("%q is not a URL; an example is %s", address, exampleHealthURL)
	}
	if timeout <= 0 {
		return app.Usagef("--timeout %s is too short: want more than 0s", timeout)
	}
	return nil
}

// askHealth returns the status line of an answer that says "ready". A redirection is not followed: whoever redirects is not Slipway.
func askHealth(ctx context.Context, address string, encryption *tls.Config) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", app.Usagef("%s", err)
	}
	asker := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: encryption},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := asker.Do(request)
	if err != nil {
		return "", fmt.Errorf("%s does not answer: %s", address, apiclient.PlainCause(errors.Unwrap(err)))
	}
	defer response.Body.Close()
	if response.StatusCode/100 == 2 {
		return response.Status, nil
	}
	return "", fmt.Errorf("%s answered %s: %s", address, response.Status, missing(response.Body))
}

func missing(body io.Reader) string {
	var report client.Readiness
	if json.NewDecoder(io.LimitReader(body, healthAnswerBytes)).Decode(&report) != nil {
		return UnreadableResponse
	}
	var lines []string
	for _, check := range report.Checks {
		if !check.OK {
			lines = append(lines, check.Name+": "+render.OneLine(check.Message))
		}
	}
	if len(lines) == 0 {
		return UnreadableResponse
	}
	return strings.Join(lines, "; ")
}
