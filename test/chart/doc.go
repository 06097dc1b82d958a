// Package chart tests the Helm chart of deploy/helm: what it renders, that the API server accepts it, that the
// permissions it grants suffice for the engine, and that it can be upgraded while releases are running.
package chart
