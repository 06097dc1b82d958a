// Package chart tests the Helm chart of deploy/helm: what it renders, that the API server takes it, that the engine works with no other rights than those that
// it gives, and that it is upgraded under releases that are on their way.
package chart
