package main

import (
	uiserver "github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/server_options"
)

type webUI struct{ server *uiserver.Server }

// startUI serves the Web UI in the background. Its port was found free by choosePorts; should another process take it
// in between, the UI ends this process with a message.
func startUI(o options) *webUI {
	ui := &webUI{server: uiserver.NewServer(server_options.WithConfigProvider(&uiconfig.Config{
		Host:                o.UIIP,
		Port:                o.UIPort,
		TemporalGRPCAddress: o.frontendAddress(),
		EnableUI:            true,
		DefaultNamespace:    o.Namespaces[0],
		HideLogs:            true,
		// Both would ask hosts of the internet.
		DisableNewsFetch:   true,
		NotifyOnNewVersion: false,
		// A browser sends the cookie over plain HTTP only if it may.
		CORS: uiconfig.CORS{CookieInsecure: true},
	}))}
	go func() { _ = ui.server.Start() }()
	return ui
}

func (ui *webUI) stop() { ui.server.Stop() }
