// Package fetch is `slipway fetch`: the init container that brings a code package into a pod. It needs no engine and no cluster.
package fetch

import (
	"context"
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
	"slipway.io/slipway/release/source"
)

// terminationLog is where Kubernetes reads why a container failed.
const terminationLog = "/dev/termination-log"

// maxTermination is how much of it Kubernetes shows.
const maxTermination = 4096

const defaultPatience = 5 * time.Minute

// options are the flags.
type options struct {
	sha256, to, file    string
	urls, trusted       []string
	allow               []string
	limits              source.Limits
	credentials         string
	patience            time.Duration
	terminationLog      string
	terminationLogGiven bool
}

// Command is slipway fetch.
func Command(a *app.App) *cobra.Command {
	o := options{limits: source.DefaultLimits}
	command := &cobra.Command{
		Use:   "fetch --sha256 DIGEST --url URL... --to FOLDER",
		Short: "Download a package, verify and unpack it (in the pods of a service)",
		Long: `Download a code package, verify its SHA-256 digest and unpack it to FOLDER/content. The pods of a service that is deployed
by HTTP_UPLOAD_DEPLOY run this command as an init container. It needs no engine and no cluster.

The URLs are tried in order; those in ` + source.EnvURLs + `, one per line, come after those of --url. When none works and a failure may be
temporary, they are tried again until --patience has passed. A URL that serves other bytes is refused.

zip, tar, tar.gz and tar.zst are recognised by content. An archive whose entries leave the folder is refused, and so is one that is damaged or
larger than the limits. FOLDER/content appears when it is complete, and stays as it is when the command runs again for the same digest.

On failure, the reason is also written to ` + terminationLog + ` if this file exists, which Kubernetes shows in the pod's status.`,
		Example: `  slipway fetch --sha256 9f86d0…0a08 --url https://packages.example.com/shop.zip --to /slipway-package
  slipway fetch --sha256 9f86d0…0a08 --url https://packages.example.com/shop.jar --file app.jar --to /slipway-package`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.terminationLogGiven = c.Flags().Changed("termination-log")
			err := run(c.Context(), a, o)
			if err != nil && c.Context().Err() == nil {
				err = errors.Join(err, o.terminate(err))
			}
			return err
		},
	}
	o.flags(command)
	return command
}

func (o *options) flags(command *cobra.Command) {
	f := command.Flags()
	f.StringVar(&o.sha256, "sha256", "", "`digest` of the package, in hexadecimal digits")
	f.StringArrayVar(&o.urls, "url", nil, "`URL` of the package; repeat it for others to try, in order")
	f.StringArrayVar(&o.trusted, "trusted", nil, "base `URL` of the package store, which may have any address and gets no credentials; can be repeated")
	f.StringVar(&o.to, "to", "", "`folder` in which content is made")
	f.StringVar(&o.file, "file", "", "keep the package whole as a file of this `name`, instead of unpacking it")
	f.StringArrayVar(&o.allow, "allow", nil, "what may be connected to: public, a host, a network, each with or without :port; can be repeated (default public)")
	f.StringVar(&o.credentials, "credentials", "", "`folder` of a mounted Secret with the credentials of the source: one file for each key")
	f.Int64Var(&o.limits.Bytes, "max-bytes", o.limits.Bytes, "largest size of the package")
	f.Int64Var(&o.limits.UnpackedBytes, "max-unpacked-bytes", o.limits.UnpackedBytes, "largest size of its files together")
	f.IntVar(&o.limits.Entries, "max-entries", o.limits.Entries, "largest number of its files, folders and links")
	f.DurationVar(&o.patience, "patience", defaultPatience, "how long to try again after temporary failures")
	f.StringVar(&o.terminationLog, "termination-log", terminationLog, "`file` for the reason of a failure")
	_ = command.MarkFlagRequired("sha256")
	_ = command.MarkFlagRequired("to")
	_ = command.MarkFlagDirname("to")
	_ = command.MarkFlagDirname("credentials")
}

// check completes the options, and refuses those that can't work.
func (o *options) check() error {
	o.sha256 = strings.ToLower(o.sha256)
	if digest, err := hex.DecodeString(o.sha256); err != nil || len(digest) != 32 {
		return app.Usagef("--sha256 %q is not a SHA-256 digest: want 64 hexadecimal digits", o.sha256)
	}
	for line := range strings.Lines(os.Getenv(source.EnvURLs)) {
		if line = strings.TrimSpace(line); line != "" {
			o.urls = append(o.urls, line)
		}
	}
	if len(o.urls) == 0 {
		return app.Usagef("no URL to download from: give --url, or lines in %s", source.EnvURLs)
	}
	if o.file != "" && (o.file == "." || o.file == ".." || len(o.file) > maxFileName || strings.ContainsAny(o.file, `/\`) ||
		strings.ContainsFunc(o.file, unicode.IsControl)) {
		return app.Usagef("--file %q is not the name of a file: want one without slashes, of at most %d bytes", o.file, maxFileName)
	}
	if o.limits.Bytes <= 0 || o.limits.UnpackedBytes <= 0 || o.limits.Entries <= 0 {
		return app.Usagef("--max-bytes, --max-unpacked-bytes and --max-entries want more than 0")
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
	asked := contents{SHA256: o.sha256, File: o.file, Boot: bootID()}
	if v.has(asked) {
		a.Printf(a.Out, "%s already has the package sha256:%s\n", filepath.Join(o.to, source.FolderContent), o.sha256)
		return nil
	}
	told, err := o.deliver(ctx, a, allow, v, asked)
	if cleaned := v.clean(); err == nil {
		err = cleaned
	}
	if err != nil {
		return err
	}
	a.Printf(a.Out, "%s: %s\n", filepath.Join(o.to, source.FolderContent), told)
	return nil
}

// deliver downloads the package and makes content of it.
func (o *options) deliver(ctx context.Context, a *app.App, allow source.Allow, v volume, asked contents) (told string, err error) {
	into, err := v.begin()
	if err != nil {
		return "", err
	}
	defer into.Close()
	credentials, lacking := readCredentials(o.credentials)
	client := download.New(download.Options{Allow: allow, Credentials: credentials, MaxBytes: o.limits.Bytes, Trusted: o.trusted})
	d := &downloads{app: a, client: client, sha256: o.sha256, until: a.Now().Add(o.patience), into: into}
	if err := d.first(ctx, o.urls); err != nil {
		if lacking != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w; no credentials were sent: %w", err, lacking)
		}
		return "", err
	}
	return v.fill(ctx, asked, into, o.limits)
}

// maxSecret is the largest Secret that Kubernetes keeps.
const maxSecret = 1 << 20

// readCredentials reads a mounted Secret. One that doesn't exist leaves the folder empty; a download from the store needs none, so that
// nothing fails before a source asks for them.
func readCredentials(folder string) (*source.Credentials, error) {
	if folder == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("the credentials can't be read: %w", err)
	}
	data := map[string][]byte{}
	for _, entry := range entries {
		// The others are how a mounted Secret is swapped: ..data and ..2006_01_02.
		if strings.HasPrefix(entry.Name(), "..") {
			continue
		}
		if data[entry.Name()], err = readKey(filepath.Join(folder, entry.Name())); err != nil {
			return nil, fmt.Errorf("the credentials can't be read: %w", err)
		}
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("%s has no credentials: the Secret doesn't exist, or is empty", folder)
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

// terminate writes the reason of a failure to where Kubernetes reads it. The usual file is there in containers only.
func (o *options) terminate(reason error) error {
	flags := os.O_WRONLY | os.O_TRUNC
	if o.terminationLogGiven {
		flags |= os.O_CREATE
	}
	file, err := os.OpenFile(o.terminationLog, flags, 0o644)
	if err != nil {
		if !o.terminationLogGiven {
			return nil
		}
		return fmt.Errorf("the reason can't be written for Kubernetes: %w", err)
	}
	text := reason.Error()
	if len(text) > maxTermination {
		text = strings.ToValidUTF8(text[:maxTermination], "")
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
