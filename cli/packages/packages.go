// Package packages implements `slipway package`: code packages and their store.
package packages

import (
	"github.com/spf13/cobra"

	"slipway.io/slipway/activities/source/packages"
	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/settings"
)

// Command returns `slipway package`. The subcommand that serves the store is passed in, like the other server commands.
func Command(a *app.App, serve *cobra.Command) *cobra.Command {
	command := &cobra.Command{
		Use:   "package",
		Short: "Serve a store of code packages, or upload packages",
		Long: `Plan items with HTTP_UPLOAD_DEPLOY deploy code packages into pods. A store keeps packages by their SHA-256
digest, so that pods can still download them after their source was deleted or changed.`,
	}
	command.AddCommand(serve, pushCommand(a))
	return command
}

// NewClient returns a client of the package store in the settings; nil without a store.
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
		token, _ := file.Token() // without a token, the store returns the error
		return string(token)
	}), nil
}
