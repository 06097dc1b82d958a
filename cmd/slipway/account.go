package main

import (
	"context"
	"log/slog"
	"slices"

	"go.uber.org/fx"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/guard"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/cli/version"
	"slipway.io/slipway/deploy/rbac"
	"slipway.io/slipway/kube"
	own "slipway.io/slipway/kube/account"
	"slipway.io/slipway/release/account"
	gates "slipway.io/slipway/release/guard"
)

// role is what a process does for the engine: the name of the account that it makes itself.
type role string

// The roles. Workers of the centre have the name of deploy/rbac/centre.yaml.
const (
	roleServer role = "slipway-server"
	roleWorker role = "slipway"
	roleDev    role = "slipway-dev"
	roleParty  role = "slipway-party"
)

// partyNamespace is the namespace of the account of a party's worker.
const partyNamespace = "slipway-party"

// kubeOptions returns how to connect to the cluster of this process.
func kubeOptions(s settings.Settings) kube.Options {
	return kube.Options{Kubeconfig: s.Kubeconfig, Context: s.Context, QPS: s.KubeQPS, Burst: s.KubeBurst,
		UserAgent: version.UserAgent()}
}

// newAccount returns the account of this process, which acts as it for as long as it runs.
func newAccount(lc fx.Lifecycle, s settings.Settings, as role, log *slog.Logger) (*own.Own, error) {
	credentials, err := kube.Connect(kubeOptions(s))
	if err != nil {
		return nil, err
	}
	mine, err := own.New(accountOptions(s, as, credentials, log))
	if err == nil {
		inBackground(lc, mine.Run)
	}
	return mine, err
}

// newRESTConfig returns the configuration of all clients for the cluster of this process.
func newRESTConfig(s settings.Settings, mine *own.Own, traces *tracing) *rest.Config {
	config := kube.Configure(mine.Config(), kubeOptions(s))
	config.Wrap(traces.transport)
	return config
}

func accountOptions(s settings.Settings, as role, credentials *rest.Config, log *slog.Logger) own.Options {
	o := own.Options{Credentials: credentials, Off: s.OwnAccount == settings.OwnAccountOff, Log: log,
		Account: account.Account{Namespace: s.Namespace, Name: string(as), Released: s.WatchNamespaces,
			Names: accountNames(s)},
		Manifests: accountManifests(s, as), Namespaces: []string{s.Namespace, s.ServingNamespace}}
	if as == roleParty {
		o.Account.Namespace, o.Namespaces = partyNamespace, []string{partyNamespace}
	}
	return o
}

// accountNames returns the names that namespaces and objects of deploy/rbac have here. What those have in a party's
// namespace are the scripts of the worker's own namespace.
func accountNames(s settings.Settings) map[string]string {
	return map[string]string{"slipway": s.Namespace, "cross-domain": s.ServingNamespace,
		"kruise-rollout": "kruise-rollout", partyNamespace: ownNamespace(s),
		"slipway-gate-slipway": gates.GateOf(s.Namespace), "slipway-authors-slipway": gates.AuthorsOf(s.Namespace)}
}

// accountManifests returns the manifests of deploy/rbac that grant what a process of this role needs.
func accountManifests(s settings.Settings, as role) (all []account.Manifest) {
	if as == roleServer || as == roleDev {
		all = append(all, account.Manifest{Name: "server.yaml", Text: rbac.Server},
			account.Manifest{Name: "by-server.yaml", Text: rbac.ByServer, Omit: notByServer(s)})
	}
	if as == roleWorker || as == roleDev {
		all = append(all, account.Manifest{Name: "centre.yaml", Text: rbac.Centre},
			account.Manifest{Name: "rollouts.yaml", Text: rbac.Rollouts})
	}
	if as == roleServer {
		return all
	}
	all = append(all, account.Manifest{Name: "party.yaml", Text: rbac.Party})
	for _, option := range []account.Manifest{
		{Name: "party-builds.yaml", Text: rbac.PartyBuilds}, {Name: "party-istio.yaml", Text: rbac.PartyIstio},
		{Name: "party-kruise.yaml", Text: rbac.PartyKruise}, {Name: "party-secrets.yaml", Text: rbac.PartySecrets},
		{Name: "party-servings.yaml", Text: rbac.PartyServings},
		{Name: "party-scripts.yaml", Text: rbac.PartyScripts, Omit: notOfAdministrators(s)},
		{Name: "guard-reader.yaml", Text: rbac.GuardReader},
	} {
		option.Optional = true
		all = append(all, option)
	}
	return all
}

// notOfAdministrators omits the scripts of the worker's own namespace if it is its tenants' too.
func notOfAdministrators(s settings.Settings) []string {
	if slices.Contains(s.WatchNamespaces, ownNamespace(s)) {
		return []string{"slipway-own-scripts"}
	}
	return nil
}

// identities returns the users whose edits pass the guard and the gate that this process installs, and nothing of what
// is installed: the accounts that this engine makes itself, or that of this process, and those of --engine-identity.
func identities(who own.Who, s settings.Settings, as role) (list []string) {
	worker := account.User(s.Namespace, string(roleWorker))
	switch {
	case who.Own: // server and worker may later run apart, or together
		list = []string{worker, account.User(s.Namespace, string(roleDev))}
	case who.User != "":
		list = []string{who.User}
	}
	if as == roleServer && len(s.EngineIdentity) == 0 { // the workers have an account of their own
		list = append(list, worker)
	}
	list = append(list, s.EngineIdentity...)
	slices.Sort(list)
	return slices.Compact(list)
}

// checkIdentities refuses identities that this process would write nowhere.
func checkIdentities(s settings.Settings, installsGuard bool) error {
	if len(s.EngineIdentity) > 0 && !installsGuard && !s.RegisterWebhooks {
		return app.Usagef("--engine-identity has no effect: this process installs neither the guard (slipway dev, " +
			"--install-guard) nor the gate's webhook (--register-webhooks). Name the identities to `slipway guard " +
			"install`, or in the Helm chart's guard.identities")
	}
	return nil
}

// guardList returns the identities with the command that writes them.
func guardList(ctx context.Context, mine *own.Own, s settings.Settings, as role) (guard.List, error) {
	who, err := mine.Who(ctx)
	if err != nil {
		return guard.List{}, err
	}
	command := map[role]string{roleServer: "slipway server", roleDev: "slipway dev"}[as]
	return guard.List{Identities: identities(who, s, as), With: command + " in the namespace " + s.Namespace}, nil
}
