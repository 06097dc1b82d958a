// Package account gives a process that was started with a person's credentials a service account of its own, so that
// API servers can distinguish the process from that person. The person's credentials then only make the account and
// renew its token.
package account

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/pause"
	"slipway.io/slipway/release/account"
)

// Options say which account to make.
type Options struct {
	// Credentials are those that the process was started with: a configuration of kube.Connect.
	Credentials *rest.Config
	// Account is the account to make, with the rights of Manifests. Namespaces are created if they do not exist.
	Account    account.Account
	Manifests  []account.Manifest
	Namespaces []string
	// Off makes no account.
	Off bool
	Log *slog.Logger
}

// Who is what a process acts as in the API server.
type Who struct {
	// User is its user name; "" if the API server cannot say.
	User string
	// Own is true if the process has made itself this account.
	Own bool
}

// Own is the account of this process.
type Own struct {
	o      Options
	person struct {
		kube.Typed
		dynamic.Interface
		transport http.RoundTripper
	}
	// own is a client of the account itself.
	own kube.Typed
	// refused is sent to when the API server does not accept the token.
	refused chan struct{}

	mu sync.Mutex
	// changed is closed when one of the following has changed.
	changed chan struct{}
	settled bool
	who     Who
	token   token
	// failure is why the last attempt to find out has failed; nil while the first one is under way.
	failure error
}

// token is a token of the account. The zero value is none.
type token struct {
	text          string
	issued, until time.Time
}

// New returns the account of a process that has these credentials. It makes no request: that is up to Run.
func New(o Options) (*Own, error) {
	own := &Own{o: o, refused: make(chan struct{}, 1), changed: make(chan struct{})}
	var err error
	if own.person.Typed, own.person.Interface, err = kube.NewClients(o.Credentials); err != nil {
		return nil, err
	}
	// the requests of Config are wrapped there
	bare := rest.CopyConfig(o.Credentials)
	bare.WrapTransport = nil
	if own.person.transport, err = rest.TransportFor(bare); err != nil {
		return nil, err
	}
	mine := rest.AnonymousClientConfig(o.Credentials)
	mine.Wrap(func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return own.send(base, r) })
	})
	own.own, err = kube.NewTyped(mine)
	return own, err
}

// Config returns the configuration of all clients of the process, without the settings of kube.Configure. Its requests
// wait until Run knows what the process acts as.
func (o *Own) Config() *rest.Config {
	config := rest.AnonymousClientConfig(o.o.Credentials)
	config.Wrap(func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			who, err := o.Who(r.Context())
			switch {
			case err != nil:
				return nil, err
			case !who.Own:
				return o.person.transport.RoundTrip(r)
			}
			return o.send(base, r)
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// send sends a request with the account's token.
func (o *Own) send(base http.RoundTripper, r *http.Request) (*http.Response, error) {
	o.mu.Lock()
	text := o.token.text
	o.mu.Unlock()
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+text)
	answer, err := base.RoundTrip(r)
	if err == nil && answer.StatusCode == http.StatusUnauthorized {
		select {
		case o.refused <- struct{}{}:
		default:
		}
	}
	return answer, err
}

// Credentials returns the configuration with which the process was started: an administrator's rights are needed for
// the guard, which the account does not have.
func (o *Own) Credentials() *rest.Config { return o.o.Credentials }

// Who returns what the process acts as. It waits for the first answer of the cluster, and fails if the cluster does not
// answer.
func (o *Own) Who(ctx context.Context) (Who, error) {
	for {
		o.mu.Lock()
		who, settled, failure, changed := o.who, o.settled, o.failure, o.changed
		o.mu.Unlock()
		if settled || failure != nil {
			return who, failure
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Who{}, context.Cause(ctx)
		}
	}
}

// set changes the state and wakes those who wait for it.
func (o *Own) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
	close(o.changed)
	o.changed = make(chan struct{})
}

const (
	// findTimeout bounds one attempt to find out what the process acts as.
	findTimeout = 30 * time.Second
	// findInterval is the pause before the next attempt with a cluster that did not answer.
	findInterval = time.Second
)

// Run finds out what the process acts as, makes the account and renews its token until the context ends.
func (o *Own) Run(ctx context.Context) {
	for {
		call, cancel := context.WithTimeout(ctx, findTimeout)
		who, made, err := o.find(call)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			o.set(func() { o.who, o.settled, o.failure = who, true, nil })
			if who.Own {
				o.maintain(ctx, made)
			}
			return
		}
		if o.failure == nil || o.failure.Error() != err.Error() {
			o.o.Log.WarnContext(ctx, "the cluster does not answer yet, so that this process does not know its account",
				"error", kube.Text(err))
		}
		o.set(func() { o.failure = err })
		if pause.For(ctx, findInterval) != nil {
			return
		}
	}
}

// find returns what the process acts as; it makes the account if necessary. The error is that of a cluster which does
// not answer.
func (o *Own) find(ctx context.Context) (who Who, made result, err error) {
	review, err := o.person.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	switch {
	case unanswered(err):
		return who, made, err
	case err != nil:
		o.o.Log.WarnContext(ctx, "it is unknown which user this process acts as: the API server does not say",
			"error", err)
		return who, made, nil
	}
	who.User = review.Status.UserInfo.Username
	switch {
	case account.IsServiceAccount(who.User):
		return who, made, nil
	case o.o.Off:
		o.warn(ctx, who.User, "--own-account is off")
		return who, made, nil
	}
	if made, err = o.make(ctx); err == nil {
		err = o.renew(ctx)
	}
	switch {
	case unanswered(err):
		return who, made, err
	case err != nil:
		o.warn(ctx, who.User, "it can't make itself the service account "+o.o.Account.User()+": "+kube.Text(err))
		return who, made, nil
	}
	o.awaitRights(ctx, made.rights)
	select { // the API server may have refused the token of an account that it did not know yet
	case <-o.refused:
	default:
	}
	o.o.Log.InfoContext(ctx, "this process acts as a service account of its own", "account", o.o.Account.User(),
		"made by", who.User)
	return Who{User: o.o.Account.User(), Own: true}, made, nil
}

func unanswered(err error) bool { return err != nil && kube.Classify(err) == kube.Unreachable }

// warn says what does not hold for a process that acts as a person.
func (o *Own) warn(ctx context.Context, user, why string) {
	o.o.Log.WarnContext(ctx, fmt.Sprintf("this process acts as %s, who is no service account: API servers can't "+
		"distinguish what the engine writes from what %[1]s edits. Where the guard and the gate let this engine pass, "+
		"%[1]s passes too: nothing that %[1]s edits is held, restored or refused. Give the process an account of its "+
		"own (deploy/rbac), or let it make one with a kubeconfig that may (--own-account=auto)", user), "why", why)
}

// rightsTimeout is how long to wait until the API server grants what was just written; until then it would refuse
// requests.
const rightsTimeout, rightsTick = 10 * time.Second, 20 * time.Millisecond

// awaitRights waits until the account has these rights.
func (o *Own) awaitRights(ctx context.Context, rights []kube.Permission) {
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	for {
		denied, err := kube.NewPermissions(o.own).Denied(ctx, rights)
		if err == nil && len(denied) == 0 {
			return
		}
		if pause.For(ctx, rightsTick) != nil {
			o.o.Log.WarnContext(ctx, "the API server does not grant yet what the service account was given",
				"account", o.o.Account.User(), "lacks", len(denied), "error", err)
			return
		}
		if err == nil {
			rights = denied
		}
	}
}
