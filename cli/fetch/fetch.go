// Package fetch implements `slipway fetch`, the init container that downloads a code package into a pod. It needs no
// engine and no cluster.
package fetch

import (
	"context"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"slipway.io/slipway/activities/source/download"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/source"
)

// terminationLog is the file from which Kubernetes reads why a container failed.
const terminationLog = "/dev/termination-log"

// maxTermination is how many bytes of it Kubernetes shows.
const maxTermination = 4096

const defaultPatience = 5 * time.Minute

// options holds the flags.
type options struct {
	sha256, to, file string
	urls, trusted    []string
	allow            []string
	limits           source.Limits
	credentials      string
	patience         time.Duration
	terminationLog   string
	// trustedCA has the CAs of the servers in trusted, in PEM form; "": those of the system.
	trustedCA string
}

// Command returns `slipway fetch`.
func Command(a *app.App) *cobra.Command {
	o := options{limits: source.DefaultLimits}
	command := &cobra.Command{
		Use:   "fetch --sha256 DIGEST --url URL... --to FOLDER",
		Short: "Download, verify and unpack a code package (in a service's pods)",
		Long: `Download a code package, verify its SHA-256 digest and unpack it to FOLDER/content. Services that are deployed
with HTTP_UPLOAD_DEPLOY run this command as an init container. It needs no engine and no cluster.

URLs are tried in order: first those of --url, then those in ` + source.EnvURLs + ` (one per line). If none works and a
failure may be temporary, all are retried until --patience has passed. A package with another digest is rejected.

The formats zip, tar, tar.gz and tar.zst are detected by content. Archives that are damaged, exceed the limits or have
entries outside the folder are rejected. FOLDER/content appears only when it is complete. Running the command again
with the same digest changes nothing.

On failure, the reason is also written to ` + terminationLog + `, if this file exists, so that Kubernetes shows it in
the pod status.`,
		Example: `  slipway fetch --sha256 9f86d0…0a08 --url https://packages.example.com/shop.zip --to /slipway-package
  slipway fetch --sha256 9f86d0…0a08 --url https://packages.example.com/shop.jar \
    --file app.jar --to /slipway-package`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			err := run(c.Context(), a, o)
			if err != nil && c.Context().Err() == nil {
				err = errors.Join(err, writeTerminationLog(o.terminationLog, c.Flags().Changed("termination-log"), err))
			}
			return err
		},
	}
	o.flags(command)
	return command
}

func (o *options) flags(command *cobra.Command) {
	f := command.Flags()
	f.StringVar(&o.sha256, "sha256", "", "SHA-256 `digest` of the package, in hexadecimal")
	f.StringArrayVar(&o.urls, "url", nil, "`URL` of the package; repeat the flag to add alternatives, tried in order")
	f.StringArrayVar(&o.trusted, "trusted", nil, "base `URL` of the package store: exempt from --allow, and never "+
		"sent credentials; can be repeated")
	f.StringVar(&o.trustedCA, "trusted-ca", "", "CAs of the servers under --trusted, as `PEM` text (default those of "+
		"the system)")
	f.StringVar(&o.to, "to", "", "`folder` in which to create the folder content")
	f.StringVar(&o.file, "file", "", "keep the package as one file with this `name`, instead of unpacking it")
	f.StringArrayVar(&o.allow, "allow", nil, "allowed destinations: public, a host or a network, each with an "+
		"optional :port; can be repeated (default public)")
	f.StringVar(&o.credentials, "credentials", "",
		"`folder` of a mounted Secret with the credentials of the source, one file per key")
	f.Int64Var(&o.limits.Bytes, "max-bytes", o.limits.Bytes, "maximum size of the package")
	f.Int64Var(&o.limits.UnpackedBytes, "max-unpacked-bytes", o.limits.UnpackedBytes,
		"maximum total size of the unpacked files")
	f.IntVar(&o.limits.Entries, "max-entries", o.limits.Entries,
		"maximum number of files, folders and links in the package")
	app.DurationFlag(command, &o.patience, "patience", defaultPatience, "how long to retry temporary failures")
	f.StringVar(&o.terminationLog, "termination-log", terminationLog,
		"`file` to which the reason of a failure is written")
	_ = command.MarkFlagRequired("sha256")
	_ = command.MarkFlagRequired("to")
	_ = command.MarkFlagDirname("to")
	_ = command.MarkFlagDirname("credentials")
}

// check validates the options and adds the URLs from the environment.
func (o *options) check() error {
	o.sha256 = strings.ToLower(o.sha256)
	if digest, err := hex.DecodeString(o.sha256); err != nil || len(digest) != 32 {
		return app.Usagef("--sha256 %q is not a SHA-256 digest: must be 64 hexadecimal digits", o.sha256)
	}
	for line := range strings.Lines(os.Getenv(source.EnvURLs)) {
		if line = strings.TrimSpace(line); line != "" {
			o.urls = append(o.urls, line)
		}
	}
	if len(o.urls) == 0 {
		return app.Usagef("no download URL: set --url or %s", source.EnvURLs)
	}
	if o.file != "" && (o.file == "." || o.file == ".." || len(o.file) > maxFileName ||
		strings.ContainsAny(o.file, `/\`) || strings.ContainsFunc(o.file, unicode.IsControl)) {
		return app.Usagef("--file %q is not a file name: must have no slashes and at most %d bytes", o.file,
			maxFileName)
	}
	if o.limits.Bytes <= 0 || o.limits.UnpackedBytes <= 0 || o.limits.Entries <= 0 {
		return app.Usagef("--max-bytes, --max-unpacked-bytes and --max-entries must be greater than 0")
	}
	return nil
}

const maxFileName = 255

func run(ctx context.Context, a *app.App, o options) error {
	if err := o.check(); err != nil {
		return err
	}
	allow, err := source.ParseAllow(o.allow)
	if err != nil {
		return app.Usagef("--allow: %s", err)
	}
	v, err := openVolume(o.to)
	if err != nil {
		return err
	}
	defer v.Close()
	asked := packageInfo{SHA256: o.sha256, File: o.file, Boot: bootID()}
	if v.has(asked) {
		a.Printf(a.Out, "%s already has the package sha256:%s\n", filepath.Join(o.to, source.FolderContent), o.sha256)
		return nil
	}
	summary, err := o.downloadAndUnpack(ctx, a, allow, v, asked)
	if cleaned := v.clean(); err == nil {
		err = cleaned
	}
	if err != nil {
		return err
	}
	a.Printf(a.Out, "%s: %s\n", filepath.Join(o.to, source.FolderContent), summary)
	return nil
}

// downloadAndUnpack downloads the package and unpacks it into the content folder. It returns a summary for the user.
func (o *options) downloadAndUnpack(ctx context.Context, a *app.App, allow source.Allow, v volume,
	asked packageInfo) (summary string, err error) {
	trusted, err := o.trustedCAs()
	if err != nil {
		return "", err
	}
	into, err := v.prepare()
	if err != nil {
		return "", err
	}
	defer into.Close()
	credentials, lacking := readCredentials(o.credentials)
	client := download.New(download.Options{Allow: allow, Credentials: credentials, MaxBytes: o.limits.Bytes,
		Trusted: o.trusted, TrustedCAs: trusted})
	d := &downloads{app: a, client: client, sha256: o.sha256, retryUntil: a.Now().Add(o.patience), target: into}
	if err := d.fetchAny(ctx, o.urls); err != nil {
		if lacking != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w; no credentials were sent: %w", err, lacking)
		}
		return "", err
	}
	return v.install(ctx, asked, into, o.limits)
}

// trustedCAs returns the CAs of --trusted-ca; nil: those of the system.
func (o *options) trustedCAs() (*x509.CertPool, error) {
	if o.trustedCA == "" {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(o.trustedCA)) {
		return nil, app.Usagef("--trusted-ca holds no certificate in PEM form")
	}
	return pool, nil
}

// maxSecret is the maximum size of a Kubernetes Secret.
const maxSecret = 1 << 20

// readCredentials reads a mounted Secret. For a missing Secret the folder is empty. That is not a failure by itself: a
// download from the package store needs no credentials.
func readCredentials(folder string) (*source.Credentials, error) {
	if folder == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("cannot read the credentials: %w", err)
	}
	data := map[string][]byte{}
	for _, entry := range entries {
		// Kubernetes swaps a mounted Secret with entries named ..data and ..2006_01_02.
		if strings.HasPrefix(entry.Name(), "..") {
			continue
		}
		if data[entry.Name()], err = readKey(filepath.Join(folder, entry.Name())); err != nil {
			return nil, fmt.Errorf("cannot read the credentials: %w", err)
		}
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("no credentials in %s: the Secret does not exist or is empty", folder)
	}
	credentials, err := source.ParseCredentials(folder, data)
	if err != nil {
		return nil, err
	}
	return &credentials, nil
}

func readKey(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxSecret))
}

// writeTerminationLog writes the reason of a failure to the termination log. The default file exists only in
// containers.
func writeTerminationLog(path string, given bool, reason error) error {
	flags := os.O_WRONLY | os.O_TRUNC
	if given {
		flags |= os.O_CREATE
	}
	file, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		if !given {
			return nil
		}
		return fmt.Errorf("cannot write the termination log: %w", err)
	}
	_, err = file.WriteString(phrase.Cut(reason.Error(), maxTermination))
	return errors.Join(err, file.Close())
}

// downloads tries URLs until one returns the package.
type downloads struct {
	app    *app.App
	client *download.Client
	sha256 string
	// retryUntil is the time after which temporary failures are no longer retried.
	retryUntil time.Time
	target     *os.File
}

// fetchAny downloads the package from the first URL that has it. A URL that failed permanently is not retried.
func (d *downloads) fetchAny(ctx context.Context, urls []string) error {
	reasons := make([]string, len(urls))
	final := make([]bool, len(urls))
	for round := 1; ; round++ {
		pause := time.Duration(-1)
		for i, url := range urls {
			if final[i] {
				continue
			}
			err := d.fetch(ctx, url)
			if err == nil {
				return nil
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			reasons[i] = err.Error()
			d.app.Printf(d.app.Err, "%s\n", err)
			if wait, again := download.RetryAfter(err, round); !again {
				final[i] = true
			} else if pause < 0 || wait < pause {
				pause = wait
			}
		}
		if pause < 0 || d.app.Now().Add(pause).After(d.retryUntil) {
			return fmt.Errorf("cannot download the package sha256:%s: %s", d.sha256, strings.Join(reasons, "; "))
		}
		d.app.Printf(d.app.Err, "retrying in %s\n", pause.Round(time.Second))
		d.app.Wait(ctx, pause)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (d *downloads) fetch(ctx context.Context, url string) error {
	got, err := d.client.Fetch(ctx, url, d.target)
	if err != nil {
		return err
	}
	if got.SHA256 != d.sha256 {
		return fmt.Errorf("%s: the package has changed: its digest is sha256:%s, not sha256:%s", source.Redact(url),
			got.SHA256, d.sha256)
	}
	d.app.Printf(d.app.Out, "downloaded %d bytes from %s\n", got.Bytes, got.FinalURL)
	return nil
}
