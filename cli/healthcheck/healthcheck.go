// Package healthcheck implements `slipway healthcheck`, which checks whether a server or worker is ready.
package healthcheck

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/cli/settings"
)

// The limits of a check, and the message for a response that is not a readiness report.
const (
	exampleHealthURL   = "http://127.0.0.1:8080/readyz"
	healthTimeout      = 5 * time.Second
	maxReportBytes     = 64 << 10
	UnreadableResponse = "the response is not a readiness report"
)

// Command returns `slipway healthcheck`, for container health checks: the image has no shell and no other HTTP client.
func Command(a *app.App) *cobra.Command {
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "healthcheck [URL]",
		Short: "Check whether a server or worker is ready",
		Long: `Check whether a server or worker is ready, for container health checks. The exit code is 0 if the URL returns
a 2xx status, and 1 otherwise; failed checks are then printed to standard error. Without a URL, the command checks the
engine in --api or SLIPWAY_API, ` + exampleHealthURL + ` by default. It needs no token; with the token of that engine
(--api-token-file) it prints why a check failed.`,
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
			if timeout <= 0 {
				return app.Usagef("--timeout %s must be greater than 0s", timeout)
			}
			ctx, cancel := context.WithTimeout(c.Context(), timeout)
			defer cancel()
			status, err := checkHealth(ctx, address, authorization(values, address), encryption)
			if err != nil {
				return err
			}
			a.Printf(a.Out, "%s: %s\n", address, status)
			return nil
		},
	}
	app.ClientFlags(command)
	app.DurationFlag(command, &timeout, "timeout", healthTimeout, "how long to wait for the response")
	return command
}

// authorization returns the header Authorization for an address of the engine in --api; "" for others. Without a
// readable token, the check still works.
func authorization(values settings.Settings, address string) string {
	if values.APITokenFile == "" || !strings.HasPrefix(address, strings.TrimRight(values.API, "/")+"/") {
		return ""
	}
	token, err := auth.ReadToken("--api-token-file", values.APITokenFile)
	if err != nil {
		return ""
	}
	return "Bearer " + string(token)
}

// checkHealth returns the HTTP status of a 2xx response. Redirects are not followed, because Slipway never redirects.
func checkHealth(ctx context.Context, address, authorization string, encryption *tls.Config) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil || request.URL.Host == "" || (request.URL.Scheme != "http" && request.URL.Scheme != "https") {
		return "", app.Usagef("%q is not a URL: use, for example, %s", address, exampleHealthURL)
	}
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	httpClient := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: encryption},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("%s does not respond: %s", address, apiclient.ShortCause(errors.Unwrap(err)))
	}
	defer response.Body.Close()
	if response.StatusCode/100 == 2 {
		return response.Status, nil
	}
	return "", fmt.Errorf("%s returned %s: %s", address, response.Status, failedChecks(response.Body))
}

func failedChecks(body io.Reader) string {
	var report client.Readiness
	if json.NewDecoder(io.LimitReader(body, maxReportBytes)).Decode(&report) != nil {
		return UnreadableResponse
	}
	var lines []string
	for _, check := range report.Checks {
		if !check.OK {
			lines = append(lines, check.Name+": "+render.OneLine(check.Message))
		}
	}
	return cmp.Or(strings.Join(lines, "; "), UnreadableResponse)
}
