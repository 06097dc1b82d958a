// Package packages implements `slipway package`: code packages and their store.
package packages

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"slipway.io/slipway/activities/source/archive"
	"slipway.io/slipway/activities/source/packages"
	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/reload"
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

// Authorities are the CAs that a package store has its certificate of.
type Authorities struct {
	// PEM has their certificates and nothing else: it becomes a part of pod templates.
	PEM  string
	Pool *x509.CertPool
}

// maxAuthorities is the maximum size of Authorities.PEM: a pod template with the CAs of a whole system would be too
// large.
const maxAuthorities = 32 << 10

// OpenAuthorities returns the CAs of the package store in the settings, which are read again when their file changes;
// nil without a file.
func OpenAuthorities(s settings.Settings, log *slog.Logger) (func() Authorities, error) {
	if s.PackageStoreCAFile == "" {
		return nil, nil
	}
	read := func() (Authorities, error) { return readAuthorities(s.PackageStoreCAFile) }
	current, err := reload.NewLasting("--package-store-ca-file", log, read, 0, s.PackageStoreCAFile)
	if err != nil {
		return nil, err
	}
	return current.Get, nil
}

func readAuthorities(path string) (Authorities, error) {
	rest, err := os.ReadFile(path)
	if err != nil {
		return Authorities{}, fmt.Errorf("--package-store-ca-file: %w", err)
	}
	found := Authorities{Pool: x509.NewCertPool()}
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue // a key must not get into pod templates
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return Authorities{}, fmt.Errorf("--package-store-ca-file: %s: %w", path, err)
		}
		found.Pool.AddCert(certificate)
		found.PEM += string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
	}
	switch {
	case found.PEM == "":
		return Authorities{}, fmt.Errorf("--package-store-ca-file: %s holds no certificate in PEM form", path)
	case len(found.PEM) > maxAuthorities:
		return Authorities{}, fmt.Errorf("--package-store-ca-file: the certificates in %s have %d bytes, and pod "+
			"templates take %d: write only the CAs of the package store to it", path, len(found.PEM), maxAuthorities)
	}
	return found, nil
}

// NewClient returns a client of the package store in the settings; nil without a store. It trusts authorities, or the
// CAs of the system without them.
func NewClient(s settings.Settings, authorities func() Authorities) (*packages.Client, error) {
	if s.PackageStore == "" {
		return nil, nil
	}
	var roots func() *x509.CertPool
	if authorities != nil {
		roots = func() *x509.CertPool { return authorities().Pool }
	}
	if s.PackageStoreTokenFile == "" {
		return packages.NewClient(s.PackageStore, nil, roots), nil
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
	}, roots), nil
}

// shortFlags maps this command's short flag names to settings.
var shortFlags = map[string]string{"store": "package-store", "token-file": "package-store-token-file"}

func pushCommand(a *app.App) *cobra.Command {
	var unpack bool
	command := &cobra.Command{
		Use:   "push FILE",
		Short: "Upload a package and print its URL for a plan",
		Long: `Upload a package to the store in --package-store (or --store) and print the URL to use as httpSrcUri in a
plan. The command first checks that the package is a zip, tar, tar.gz or tar.zst archive that pods can unpack; for a
package that is not to be unpacked, set --unpack=false. A package that the store already has is not uploaded again.
--token-file is short for --package-store-token-file.`,
		Example: `  slipway package push shop-2.4.tar.gz --store http://packages.example:8085 --token-file token
  slipway package push shop.war --unpack=false
  slipway package push shop-2.4.tar.gz -o jsonpath={.url}   # with SLIPWAY_PACKAGE_STORE`,
		Args: cobra.ExactArgs(1),
	}
	command.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if long, known := shortFlags[name]; known {
			name = long
		}
		return pflag.NormalizedName(name)
	})
	app.RegisterSettings(command, settings.PackagePush)
	a.OutputFlag(command)
	command.Flags().BoolVar(&unpack, "unpack", true,
		"check that pods can unpack the package; set --unpack=false for a package that is deployed as one file, such "+
			"as a jar")
	app.AcceptYes(command)
	command.RunE = func(c *cobra.Command, args []string) error {
		values, err := app.LoadSettings(c)
		if err != nil {
			return err
		}
		if values.PackageStore == "" {
			return app.Usagef("no package store: set --store or %s", settings.EnvName("package-store"))
		}
		result, err := push(c.Context(), values, args[0], unpack)
		if err != nil {
			return err
		}
		return a.Print(result, func() {
			table := render.NewTable("SHA256", "BYTES", "WAS THERE", "URL")
			table.Add(result.SHA256, strconv.FormatInt(result.Bytes, 10),
				map[bool]string{true: "yes", false: "no"}[result.AlreadyStored], result.URL)
			a.Printf(a.Out, "%s", table)
		})
	}
	return command
}

// pushResult is the result of a push.
type pushResult struct {
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	URL    string `json:"url"`
	// AlreadyStored is true if the store already had the package.
	AlreadyStored bool `json:"wasThere"`
}

func push(ctx context.Context, s settings.Settings, path string, unpack bool) (pushResult, error) {
	authorities, err := OpenAuthorities(s, nil)
	if err != nil {
		return pushResult{}, err
	}
	store, err := NewClient(s, authorities)
	if err != nil {
		return pushResult{}, err
	}
	file, err := os.Open(path)
	if err != nil {
		return pushResult{}, fmt.Errorf("cannot read the package: %w", err)
	}
	defer file.Close()
	result, err := digest(file, s.PackageMaxBytes)
	if err != nil {
		return pushResult{}, err
	}
	if unpack {
		limits := source.Limits{Bytes: s.PackageMaxBytes, UnpackedBytes: s.PackageMaxUnpackedBytes,
			Entries: source.DefaultLimits.Entries}
		if _, err := archive.Check(ctx, file, limits); err != nil {
			if no := (*archive.Error)(nil); errors.As(err, &no) && no.NotArchive {
				err = fmt.Errorf("%w, and push it with --unpack=false", err)
			}
			return pushResult{}, fmt.Errorf("cannot unpack %s: %w", path, err)
		}
	}
	result.URL = store.URL(result.SHA256)
	result.AlreadyStored, err = send(ctx, store, file, result)
	return result, err
}

// digest computes the digest and size of the package.
func digest(file *os.File, maxBytes int64) (pushResult, error) {
	info, err := file.Stat()
	switch {
	case err != nil:
		return pushResult{}, fmt.Errorf("cannot read the package: %w", err)
	case !info.Mode().IsRegular():
		return pushResult{}, fmt.Errorf("%s is not a regular file: use the package's archive", file.Name())
	case info.Size() > maxBytes:
		return pushResult{}, fmt.Errorf("%s has %d bytes, more than the limit of %d: make it smaller, or raise "+
			"--package-max-bytes here, at the store and at the workers", file.Name(), info.Size(), maxBytes)
	}
	sum := sha256.New()
	n, err := io.Copy(sum, file)
	if err != nil {
		return pushResult{}, fmt.Errorf("cannot read the package: %w", err)
	}
	return pushResult{SHA256: hex.EncodeToString(sum.Sum(nil)), Bytes: n}, nil
}

// send uploads the package, unless the store has it.
func send(ctx context.Context, store *packages.Client, file *os.File, what pushResult) (wasThere bool, err error) {
	if wasThere, err = store.Use(ctx, what.SHA256); wasThere || err != nil {
		return wasThere, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return false, fmt.Errorf("cannot read the package: %w", err)
	}
	return false, store.Put(ctx, what.SHA256, file, what.Bytes)
}
