// Package packages holds the commands on packages of code and their store.
package packages

import (
	"github.com/spf13/cobra"

	"slipway.io/slipway/activities/source/packages"
	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/settings"
)

// Command holds the commands on packages. The one that serves the store comes from outside, as the other processes do.
func Command(a *app.App, serve *cobra.Command) *cobra.Command {
	command := &cobra.Command{
		Use:   "package",
		Short: "Serve a store of code packages, or put a package into one",
		Long: `Code packages are what a plan's items with HTTP_UPLOAD_DEPLOY bring into pods. A store keeps them under the SHA-256 of their bytes, so
that pods can download them when their source is gone or has changed.`,
	}
	command.AddCommand(serve, pushCommand(a))
	return command
}

// NewClient is a client of the package store that the settings name; nil without one.
func NewClient(s settings.Settings) (*packages.Client, error) {
	if s.PackageStore == "" {
		return nil, nil
	}
	if s.PackageStoreTokenFile == "" {
		return packages.NewClient(s.PackageStore, nil), nil
	}
	file, err := auth.NewTokenFile(s.PackageStoreTokenFile, func() (auth.Token, error) {
		return auth.ReadToken("--package-store-token-file", s.PackageStoreTokenFile)
	})
	if err != nil {
		return nil, err
	}
	return packages.NewClient(s.PackageStore, func() string {
		token, _ := file.Token() // without one, the store says what it asks for
		return string(token)
	}), nil
}
