package store

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/kube/watch"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// watchServings returns one watch for all followers of servings. It delivers metadata only: a follower reads the
// serving itself.
func (s *Store) watchServings() *watch.Watch[*metav1.PartialObjectMetadata] {
	return watch.New(watch.From(s.metadata, s.metadata.Resource(kuscia.KusciaDeploymentResource).Namespace),
		func(object *metav1.PartialObjectMetadata) (*metav1.PartialObjectMetadata, error) {
			object.ManagedFields, object.Annotations = nil, nil
			return object, nil
		}, watch.Options{Namespaces: []string{s.servingNamespace}}).
		Handle(watch.OnChange(func(object *metav1.PartialObjectMetadata) { s.followers.Notify(object.Name) }))
}

// FollowServing notifies about changes of a serving, including its deletion, until leave is called. Changes that arrive
// faster than they are received are merged. Without Run there are no notifications.
func (s *Store) FollowServing(id string) (changed <-chan struct{}, leave func()) {
	return s.followers.Subscribe(id)
}
