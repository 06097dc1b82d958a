package store

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// servingEvents tells whoever follows a serving that it has changed, by one watch for all of them. The watch brings no bodies: who is told
// reads the serving as it is then.
type servingEvents struct {
	informer cache.SharedIndexInformer

	mu        sync.Mutex
	followers map[string]map[chan struct{}]bool
}

func (s *Store) newServingEvents() (*servingEvents, error) {
	informer := metadatainformer.NewFilteredMetadataInformer(s.metadata, kuscia.KusciaDeploymentResource, s.servingNamespace, 0,
		cache.Indexers{}, nil).Informer()
	events := &servingEvents{informer: informer, followers: map[string]map[chan struct{}]bool{}}
	err := informer.SetTransform(func(value any) (any, error) {
		if object, ok := value.(*metav1.PartialObjectMetadata); ok {
			object.ManagedFields, object.Annotations = nil, nil
		}
		return value, nil
	})
	if err != nil {
		return nil, err
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: events.tell, UpdateFunc: func(_, object any) { events.tell(object) }, DeleteFunc: events.tell,
	})
	return events, err
}

func (e *servingEvents) tell(object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	_, id, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for follower := range e.followers[id] {
		select {
		case follower <- struct{}{}:
		default: // it has not looked since it was last told
		}
	}
}

// FollowServing tells of changes of a serving, its deletion included, until leave is called. Changes that come faster than they are
// received are told as one. It tells nothing unless Run was called.
func (s *Store) FollowServing(id string) (changed <-chan struct{}, leave func()) {
	e, follower := s.events, make(chan struct{}, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.followers[id] == nil {
		e.followers[id] = map[chan struct{}]bool{}
	}
	e.followers[id][follower] = true
	return follower, sync.OnceFunc(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.followers[id], follower)
		if len(e.followers[id]) == 0 {
			delete(e.followers, id)
		}
	})
}
