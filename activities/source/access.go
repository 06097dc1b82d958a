package source

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/source"
)

// URL returns the complete URL of a package, including its query. A hidden query is read from the record of the task.
func (a *Activities) URL(ctx context.Context, p source.Package) (string, error) {
	if !p.Hidden {
		return p.URL, nil
	}
	if a.options.RecordedURL == nil {
		return "", failure.New(failure.Refused, "%s", a.unreadable(p))
	}
	return a.options.RecordedURL(ctx, p.Task, p.Item)
}

func (a *Activities) unreadable(p source.Package) string {
	return fmt.Sprintf("the query of %s stays out of Temporal's histories, so this party's worker cannot read it: "+
		"write the query into the Secret "+
		"that package.credentials names (key `query`), and take it out of httpSrcUri", p.Shown)
}

// Refuses returns the reason why a package cannot be fetched for a workload of this namespace. It sends no request to
// the source: the package may be published later.
func (a *Activities) Refuses(ctx context.Context, p source.Package, namespace string) (source.Refusal, error) {
	switch {
	case a.options.Fetcher.Image == "":
		return source.Refusal{Reason: "this party's worker does not know the image that pods fetch packages with: " +
			"set SLIPWAY_IMAGE to the image of Slipway"}, nil
	case p.Hidden && a.options.RecordedURL == nil:
		return source.Refusal{Key: source.KeyPackage, Reason: a.unreadable(p)}, nil
	}
	at, err := source.ParseURL(p.URL)
	if err != nil {
		return source.Refusal{Key: source.KeyPackage, Reason: err.Error()}, nil
	}
	if host, port, err := source.Authority(at); err != nil {
		return source.Refusal{Key: source.KeyPackage, Reason: err.Error()}, nil
	} else if err := a.allow.CheckHost(host, port); err != nil && !a.isStoreURL(p.URL) {
		return source.Refusal{Key: source.KeyPackage, Reason: err.Error()}, nil
	}
	credentials, err := a.credentials(ctx, p, namespace)
	var f *failure.Error
	switch {
	case errors.As(err, &f):
		return source.Refusal{Reason: f.Message}, nil
	case err != nil:
		return source.Refusal{}, err
	case credentials != nil && !credentials.Allows(at):
		return source.Refusal{Reason: fmt.Sprintf(
			"Secret %s/%s has no credentials for %s://%s: name it under the key `hosts`", namespace, p.Credentials,
			at.Scheme,
			at.Host)}, nil
	}
	return source.Refusal{}, nil
}

// credentials returns the credentials in the Secret that the package names; nil if it names none.
func (a *Activities) credentials(ctx context.Context, p source.Package, namespace string) (*source.Credentials, error) {
	if p.Credentials == "" {
		return nil, nil
	}
	data, err := a.secret(ctx, namespace, p.Credentials, "package.credentials")
	if err != nil {
		return nil, err
	}
	credentials, err := source.ParseCredentials(namespace+"/"+p.Credentials, data)
	if err != nil {
		return nil, err
	}
	return &credentials, nil
}

// secret returns the data of a Secret. field is the catalogue field that names it, for error messages.
func (a *Activities) secret(ctx context.Context, namespace, name, field string) (map[string][]byte, error) {
	secret, err := a.secrets(ctx, namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, failure.New(failure.Refused, "Secret %s/%s, which %s names, does not exist: create it", namespace,
			name, field)
	case err != nil && kube.Classify(err) == kube.Forbidden:
		return nil, failure.New(failure.Refused, "this party's worker may not read Secret %s/%s, which %s names: "+
			"grant it get on that Secret (%s)", namespace,
			name, field, kube.Text(err))
	case err != nil:
		return nil, err
	}
	return secret.Data, nil
}
