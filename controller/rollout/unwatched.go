package rollout

import (
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"slipway.io/slipway/kube/watch"
)

// noReleases is what does not work without the permission to watch Rollouts and their workloads.
const noReleases = "kubectl changes there start no release until the permissions of deploy/rbac/rollouts.yaml are " +
	"granted; --watch-namespaces limits the namespaces"

// byNamespace is the index of objects by their namespace.
const byNamespace = "namespace"

// warnUnwatched returns what logs that objects cannot be watched; what names them. The lack of a permission is logged
// once, since that may never be granted; forbidden says what does not work, and which permissions are needed.
func warnUnwatched(log *slog.Logger, what, forbidden string) func(namespace string, err error) {
	warn := func(namespace, rest string, err error) {
		log.Warn(what+" cannot be watched in "+watch.Where(namespace)+rest, "error", err)
	}
	once := watch.Once(func(namespace string, err error) { warn(namespace, ": "+forbidden, err) })
	return func(namespace string, err error) {
		if apierrors.IsForbidden(err) {
			once(namespace, err)
		} else {
			warn(namespace, "; retrying", err)
		}
	}
}
