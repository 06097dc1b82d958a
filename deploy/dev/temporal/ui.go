package main

import (
	"context"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/temporalio/ui-server/v2/server/api"
	"github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/cors"
	"github.com/temporalio/ui-server/v2/server/csrf"
	"github.com/temporalio/ui-server/v2/server/headers"
	"github.com/temporalio/ui-server/v2/server/route"
	"github.com/temporalio/ui-server/v2/ui"
)

// startUI serves the Web UI on its port until the server is closed.
func startUI(ctx context.Context, o options, frontend string) (*http.Server, error) {
	pages, err := newUI(o, frontend)
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address(o.UIPort))
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: localOnly(pages), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }()
	return server, nil
}

// newUI puts the Web UI together as its own server does. That one listens by itself, and serves every host.
func newUI(o options, frontend string) (http.Handler, error) {
	provider, err := config.NewConfigProviderWithRefresh(&config.Config{
		TemporalGRPCAddress: frontend,
		EnableUI:            true,
		DefaultNamespace:    namespaceName,
		HideLogs:            true,
		// Both would send requests to hosts on the internet.
		DisableNewsFetch:   true,
		NotifyOnNewVersion: false,
	})
	if err != nil {
		return nil, err
	}
	assets, err := ui.Assets()
	if err != nil {
		return nil, err
	}
	if assets, err = fs.Sub(assets, "local"); err != nil {
		return nil, err
	}
	e := echo.New()
	// A browser does not send a secure cookie over plain HTTP.
	const secureCookie = false
	e.Use(middleware.Recover(), middleware.Gzip(), cors.CORSMiddleware(cors.CORSConfig{ConfigProvider: provider}),
		middleware.Secure(), csrf.EnsureTokenCookie(secureCookie),
		middleware.CSRFWithConfig(csrf.MiddlewareConfig(provider, secureCookie)))
	route.SetHealthRoute(e)
	forwarded := []api.Middleware{headers.WithForwardHeaders([]string{"Caller-Type"})}
	if err := route.SetAPIRoutes(e, provider, forwarded); err != nil {
		return nil, err
	}
	route.SetAuthRoutes(e, provider)
	if err := route.SetUIRoutes(e, "", assets, provider); err != nil {
		return nil, err
	}
	route.SetRenderRoute(e, "/")
	return e, nil
}

// localOnly refuses requests addressed to other hosts than this machine. A page can make its own host name resolve to
// 127.0.0.1, and would then be served as a page of the Web UI; but its requests carry that name.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if host != "" && host != "localhost" && (err != nil || !ip.IsLoopback()) {
			http.Error(w, "this Web UI serves 127.0.0.1 and localhost only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
