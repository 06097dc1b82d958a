// Package rbac embeds the permissions of the processes, so that each can report which of them its account lacks, and
// can make itself an account that has them.
package rbac

import _ "embed"

// Server holds the permissions of servers.
//
//go:embed server.yaml
var Server []byte

// ByServer holds the additional permissions of servers that write their webhooks or the definitions themselves.
//
//go:embed by-server.yaml
var ByServer []byte

// Centre holds the permissions of workers of the centre.
//
//go:embed centre.yaml
var Centre []byte

// Rollouts holds the additional permissions of workers of an engine that serves Rollout objects.
//
//go:embed rollouts.yaml
var Rollouts []byte

// Party holds the permissions of a party's worker, which workers of the centre need too for the workloads of their own
// cluster. The others are for features that not every worker has.
//
//go:embed party.yaml
var Party []byte

// PartyBuilds holds the permissions for builds.
//
//go:embed party-builds.yaml
var PartyBuilds []byte

// PartyIstio holds the permissions for Istio's routes.
//
//go:embed party-istio.yaml
var PartyIstio []byte

// PartyKruise holds the permissions for workloads of OpenKruise.
//
//go:embed party-kruise.yaml
var PartyKruise []byte

// PartyScripts holds the permissions for the administrator's traffic scripts.
//
//go:embed party-scripts.yaml
var PartyScripts []byte

// PartySecrets holds the permissions for credentials of packages and repositories.
//
//go:embed party-secrets.yaml
var PartySecrets []byte

// PartyServings holds the permissions for servings.
//
//go:embed party-servings.yaml
var PartyServings []byte

// GuardReader holds the permissions to read what is guarded.
//
//go:embed guard-reader.yaml
var GuardReader []byte
