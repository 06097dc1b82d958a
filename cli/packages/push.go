package packages

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"slipway.io/slipway/activities/source/archive"
	"slipway.io/slipway/activities/source/packages"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/release/source"
)

// shorter are the names by which this command's settings may be given too: it has no other store and no other token.
var shorter = map[string]string{"store": "package-store", "token-file": "package-store-token-file"}

func pushCommand(a *app.App) *cobra.Command {
	var unpack bool
	command := &cobra.Command{
		Use:   "push FILE",
		Short: "Put a package into a store, and print the URL for a plan",
		Long: `Put a package into the store that --package-store (or --store, for short) names, and print the URL to write into a plan's
httpSrcUri. The package is checked first: it has to be a zip, tar, tar.gz or tar.zst archive that pods can unpack, unless --unpack=false
says that they keep it whole. A package that is in the store already isn't sent again. --token-file is short for --package-store-token-file.`,
		Example: `  slipway package push shop-2.4.tar.gz --store http://packages.example:8085 --token-file token
  slipway package push shop.war --unpack=false
  slipway package push shop-2.4.tar.gz -o jsonpath={.url}   # with SLIPWAY_PACKAGE_STORE`,
		Args: cobra.ExactArgs(1),
	}
	command.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if long, known := shorter[name]; known {
			name = long
		}
		return pflag.NormalizedName(name)
	})
	app.RegisterSettings(command, settings.PackagePush)
	a.OutputFlag(command)
	command.Flags().BoolVar(&unpack, "unpack", true, "check that pods can unpack the package; give --unpack=false for one that a plan keeps whole, such as a jar")
	command.RunE = func(c *cobra.Command, args []string) error {
		values, err := app.LoadSettings(c)
		if err != nil {
			return err
		}
		if values.PackageStore == "" {
			return app.Usagef("no store is named: give --store URL, or set %s", settings.EnvName("package-store"))
		}
		result, err := push(c.Context(), values, args[0], unpack)
		if err != nil {
			return err
		}
		if done, err := a.PrintObject(result); done || err != nil {
			return err
		}
		table := render.NewTable("SHA256", "BYTES", "WAS THERE", "URL")
		table.Add(result.SHA256, strconv.FormatInt(result.Bytes, 10), map[bool]string{true: "yes", false: "no"}[result.WasThere], result.URL)
		a.Printf(a.Out, "%s", table)
		return nil
	}
	return command
}

// pushed is what became of a package.
type pushed struct {
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	URL    string `json:"url"`
	// WasThere: the store had it already.
	WasThere bool `json:"wasThere"`
}

func push(ctx context.Context, s settings.Settings, path string, unpack bool) (pushed, error) {
	store, err := NewClient(s)
	if err != nil {
		return pushed{}, err
	}
	file, err := os.Open(path)
	if err != nil {
		return pushed{}, fmt.Errorf("the package cannot be read: %w", err)
	}
	defer file.Close()
	result, err := digest(file, s.PackageMaxBytes)
	if err != nil {
		return pushed{}, err
	}
	if unpack {
		limits := source.Limits{Bytes: s.PackageMaxBytes, UnpackedBytes: s.PackageMaxUnpackedBytes, Entries: source.DefaultLimits.Entries}
		if _, err := archive.Check(ctx, file, limits); err != nil {
			if no := (*archive.Error)(nil); errors.As(err, &no) && no.Whole {
				err = fmt.Errorf("%w, and push it with --unpack=false", err)
			}
			return pushed{}, fmt.Errorf("%s can't be unpacked: %w", path, err)
		}
	}
	result.URL = store.URL(result.SHA256)
	result.WasThere, err = send(ctx, store, file, result)
	return result, err
}

// digest reads the package once.
func digest(file *os.File, most int64) (pushed, error) {
	info, err := file.Stat()
	switch {
	case err != nil:
		return pushed{}, fmt.Errorf("the package cannot be read: %w", err)
	case !info.Mode().IsRegular():
		return pushed{}, fmt.Errorf("%s is no file: give the archive that is the package", file.Name())
	case info.Size() > most:
		return pushed{}, fmt.Errorf("%s has %d bytes, and a package %d at most: make it smaller, or raise --package-max-bytes here, at the store "+
			"and at the workers", file.Name(), info.Size(), most)
	}
	sum := sha256.New()
	n, err := io.Copy(sum, file)
	if err != nil {
		return pushed{}, fmt.Errorf("the package cannot be read: %w", err)
	}
	return pushed{SHA256: hex.EncodeToString(sum.Sum(nil)), Bytes: n}, nil
}

// send stores the package, unless the store has it.
func send(ctx context.Context, store *packages.Client, file *os.File, what pushed) (wasThere bool, err error) {
	if wasThere, err = store.Use(ctx, what.SHA256); wasThere || err != nil {
		return wasThere, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return false, fmt.Errorf("the package cannot be read: %w", err)
	}
	return false, store.Put(ctx, what.SHA256, file, what.Bytes)
}
