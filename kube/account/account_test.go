package account

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/account"
)

const (
	patience = 20 * time.Second
	tick     = 20 * time.Millisecond
)

// cluster is an API server with one person, whose token is "person".
type cluster struct {
	mu sync.Mutex
	// user is the person's user name; life is that of the tokens that it issues.
	user string
	life time.Duration
	// deny answers a request before anything else: with this code, unless it is 0.
	deny func(method, path string) (code int)
	// issued counts the tokens; valid are those that are accepted.
	issued int
	valid  map[string]bool
	// foreign is true if the account is another's.
	foreign bool
	made    bool
	// applied are the paths of roles and bindings.
	applied map[string]int
	url     string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{user: "anna", life: time.Hour, valid: map[string]bool{"person": true}, applied: map[string]int{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *cluster) change(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	code := 0
	if c.deny != nil {
		code = c.deny(r.Method, r.URL.Path)
	}
	switch {
	case !c.valid[token]:
		code = http.StatusUnauthorized
	case code == 0:
		c.answer(w, r, token)
		return
	}
	reply(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
		Code: int32(code), Message: "denied by the test", Reason: map[int]metav1.StatusReason{
			http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusForbidden: metav1.StatusReasonForbidden,
			http.StatusUnauthorized: metav1.StatusReasonUnauthorized}[code]})
}

func reply(w http.ResponseWriter, code int, o any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o)
}

// answer answers an accepted request.
func (c *cluster) answer(w http.ResponseWriter, r *http.Request, token string) {
	named := func(kind, version string, labels map[string]any) map[string]any {
		return map[string]any{"kind": kind, "apiVersion": version, "metadata": map[string]any{"name": "x",
			"labels": labels}}
	}
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/selfsubjectreviews"):
		review := authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectReview",
			APIVersion: "authentication.k8s.io/v1"}}
		review.Status.UserInfo.Username = c.user
		reply(w, http.StatusCreated, review)
	case strings.HasSuffix(path, "/selfsubjectrulesreviews"), strings.HasSuffix(path, "/selfsubjectaccessreviews"):
		reply(w, http.StatusCreated, map[string]any{"kind": "SelfSubjectAccessReview",
			"apiVersion": "authorization.k8s.io/v1", "status": authorizationv1.SubjectAccessReviewStatus{Allowed: true}})
	case strings.HasSuffix(path, "/token"):
		c.issued++
		name := fmt.Sprintf("token-%d", c.issued)
		c.valid[name] = true
		answer := authenticationv1.TokenRequest{TypeMeta: metav1.TypeMeta{Kind: "TokenRequest",
			APIVersion: "authentication.k8s.io/v1"}}
		answer.Status.Token, answer.Status.ExpirationTimestamp = name, metav1.NewTime(time.Now().Add(c.life))
		reply(w, http.StatusCreated, answer)
	case strings.HasSuffix(path, "/serviceaccounts"), strings.HasSuffix(path, "/serviceaccounts/slipway-dev"):
		if r.Method == http.MethodGet && !c.made && !c.foreign {
			reply(w, http.StatusNotFound, metav1.Status{Status: "Failure", Code: http.StatusNotFound,
				Reason: metav1.StatusReasonNotFound})
			return
		}
		c.made = true
		labels := map[string]any{account.Label: "slipway-dev"}
		if c.foreign {
			labels = nil
		}
		reply(w, http.StatusOK, named("ServiceAccount", "v1", labels))
	case strings.Contains(path, "rbac.authorization.k8s.io"):
		c.applied[path]++
		reply(w, http.StatusOK, named("Role", "rbac.authorization.k8s.io/v1", nil))
	case strings.HasSuffix(path, "/whoami"):
		reply(w, http.StatusOK, named(token, "v1", nil))
	default:
		reply(w, http.StatusOK, named("Namespace", "v1", nil))
	}
}

const roleOf = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: slipway-%[1]s, namespace: shop}
rules: [{apiGroups: [""], resources: [pods/eviction], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: slipway-%[1]s, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: slipway-%[1]s}
`

// process is one process that was started with the person's credentials.
type process struct {
	*Own
	t   *testing.T
	log *safeBuffer
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// start starts a process, with the account slipway-dev if it may make it.
func (c *cluster) start(t *testing.T, off bool) process {
	t.Helper()
	log := &safeBuffer{}
	o := Options{Credentials: kube.Configure(&rest.Config{Host: c.url, BearerToken: "person"}, kube.Options{}),
		Account:    account.Account{Namespace: "slipway", Name: "slipway-dev", Released: []string{"shop"}},
		Namespaces: []string{"slipway"}, Off: off, Log: slog.New(slog.NewTextHandler(log, nil)),
		Manifests: []account.Manifest{{Name: "needed.yaml", Text: fmt.Appendf(nil, roleOf, "needed")},
			{Name: "option.yaml", Text: fmt.Appendf(nil, roleOf, "option"), Optional: true}}}
	own, err := New(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { own.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return process{Own: own, t: t, log: log}
}

// asks sends a request as the clients of the process do, and returns the token that it has.
func (p process) asks() (token string, err error) {
	p.t.Helper()
	client, err := rest.HTTPClientFor(kube.Configure(p.Config(), kube.Options{}))
	require.NoError(p.t, err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Credentials().Host+"/whoami", nil)
	require.NoError(p.t, err)
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	var who struct{ Kind string }
	return who.Kind, json.NewDecoder(answer.Body).Decode(&who)
}

func (p process) requireToken(token string) {
	p.t.Helper()
	client, err := rest.HTTPClientFor(kube.Configure(p.Config(), kube.Options{}))
	require.NoError(p.t, err)
	require.Eventually(p.t, func() bool {
		answer, err := client.Get(p.Credentials().Host + "/whoami")
		if err != nil {
			return false
		}
		defer func() { _ = answer.Body.Close() }()
		var who struct{ Kind string }
		return json.NewDecoder(answer.Body).Decode(&who) == nil && who.Kind == token
	}, patience, tick, "the process does not send the token %s: %s", token, p.log)
}

func (p process) requireLog(text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Contains(p.log.String(), text) }, patience, tick,
		"the log lacks %q: %s", text, p.log)
}

// A process on a person's kubeconfig acts as an account of its own, with the rights of the manifests.
func TestPerson_GetsAnAccount(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	p := c.start(t, false)
	p.requireToken("token-1")
	who, err := p.Who(context.Background())
	require.NoError(t, err)
	require.Equal(t, Who{User: "system:serviceaccount:slipway:slipway-dev", Own: true}, who)
	const path = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/"
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Equal(t, map[string]int{path + "roles/slipway:slipway-dev:slipway-needed": 1,
		path + "rolebindings/slipway:slipway-dev:slipway-needed": 1,
		path + "roles/slipway:slipway-dev:slipway-option":        1,
		path + "rolebindings/slipway:slipway-dev:slipway-option": 1}, c.applied)
}

// What a process acts as depends on its credentials, and on what these may do.
func TestProcess_KeepsItsCredentials(t *testing.T) {
	t.Parallel()
	forbidden := func(part string) func(string, string) int {
		return func(method, path string) int {
			if method != http.MethodGet && strings.Contains(path, part) {
				return http.StatusForbidden
			}
			return 0
		}
	}
	for name, c := range map[string]struct {
		reason, user string
		off          bool
		deny         func(method, path string) int
		says         string
	}{
		"ServiceAccount": {"A service account needs no other.", account.User("release", "engine"), false, nil, ""},
		"Off":            {"The setting switches it off.", "anna", true, nil, "--own-account is off"},
		"MayNotCreate": {"The person may not create accounts.", "anna", false, forbidden("/serviceaccounts"),
			"it can't make itself the service account system:serviceaccount:slipway:slipway-dev"},
		"MayNotGrant": {"The person lacks the rights, and so may not grant them.", "anna", false,
			forbidden("slipway-needed"), "the rights of deploy/rbac/needed.yaml"},
		"MayNotLogIn": {"The person may not request tokens.", "anna", false, forbidden("/token"),
			"it can't make itself the service account"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newCluster(t)
			cluster.user, cluster.deny = c.user, c.deny
			p := cluster.start(t, c.off)
			p.requireToken("person")
			who, err := p.Who(context.Background())
			require.NoError(t, err)
			require.Equal(t, Who{User: c.user}, who, c.reason)
			if c.says == "" {
				require.Empty(t, p.log.String(), c.reason)
				return
			}
			require.Contains(t, p.log.String(), "level=WARN", c.reason)
			require.Contains(t, p.log.String(), c.says, c.reason)
			require.Contains(t, p.log.String(), "nothing that anna edits is held, restored or refused", c.reason)
		})
	}
}

// Rights that not every worker needs are left out if they may not be granted.
func TestOptionalRights_MayBeRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.deny = func(_, path string) int {
		if strings.Contains(path, "slipway-option") {
			return http.StatusForbidden
		}
		return 0
	}
	p := c.start(t, false)
	p.requireToken("token-1")
	require.Contains(t, p.log.String(), "deploy/rbac/option.yaml")
}

// The rights of an account that something else has made are its administrator's decision.
func TestAccountOfAnother_KeepsItsRights(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.foreign = true
	p := c.start(t, false)
	p.requireToken("token-1")
	c.change(func() { require.Empty(t, c.applied) })
	require.Contains(t, p.log.String(), "keeps the rights that it has")
}

// A process that starts before its cluster waits for it.
func TestUnreachableCluster_IsWaitedFor(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.deny = func(string, string) int { return http.StatusServiceUnavailable }
	p := c.start(t, false)
	_, err := p.asks()
	require.Error(t, err)
	require.Equal(t, kube.Unreachable, kube.Classify(err), "the callers retry: %v", err)
	c.change(func() { c.deny = nil })
	p.requireToken("token-1")
}

// A token is renewed long before it ends. When the person's credentials have ended, the last one is used as long as it
// is valid.
func TestToken_IsRenewed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.life = 6 * time.Second
	p := c.start(t, false)
	p.requireToken("token-1")
	p.requireToken("token-2")
	c.change(func() { delete(c.valid, "person") })
	p.requireLog("cannot renew the token of the service account with the credentials that this process was started with")
	require.Contains(t, p.log.String(), "level=ERROR")
	last := ""
	c.change(func() { last = fmt.Sprintf("token-%d", c.issued) })
	p.requireToken(last)
	c.change(func() { c.valid["person"] = true })
	p.requireLog("the token of the service account is renewed again")
}

// An account that was deleted is made anew.
func TestRefusedToken_IsReplaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	p := c.start(t, false)
	p.requireToken("token-1")
	c.change(func() { delete(c.valid, "token-1"); c.made = false })
	p.requireToken("token-2")
	c.change(func() { require.True(t, c.made) })
}

func TestRenewalAfter(t *testing.T) {
	t.Parallel()
	issued := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		reason    string
		life, age time.Duration
		failed    bool
		want      time.Duration
	}{
		"Fresh":      {"At half of its life.", time.Hour, 0, false, 30 * time.Minute},
		"Later":      {"The time that has passed counts.", time.Hour, 20 * time.Minute, false, 10 * time.Minute},
		"Overdue":    {"At once.", time.Hour, 40 * time.Minute, false, -10 * time.Minute},
		"Failed":     {"A failed renewal is repeated each minute.", time.Hour, 30 * time.Minute, true, time.Minute},
		"FailedLate": {"At the end more often.", time.Hour, 59 * time.Minute, true, 30 * time.Second},
		"ClockAhead": {"A clock that is wrong by a day does not stop the renewal.", 25 * time.Hour, 0, false,
			30 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token := token{issued: issued, until: issued.Add(c.life)}
			require.Equal(t, c.want, renewalAfter(token, issued.Add(c.age), c.failed), c.reason)
		})
	}
}
