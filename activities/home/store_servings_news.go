package home

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// servingNews tells whoever follows a serving that it has changed, by one watch for all of them. The watch brings no bodies: who is told reads the serving
// as it is then.
type servingNews struct {
	informer cache.SharedIndexInformer

	mu        sync.Mutex
	followers map[string]map[chan struct{}]bool
}

func (s *Store) newServingNews() (*servingNews, error) {
	informer := metadatainformer.NewFilteredMetadataInformer(s.metadata, kuscia.KusciaDeploymentResource, s.servingNamespace, 0, cache.Indexers{}, nil).Informer()
	news := &servingNews{informer: informer, followers: map[string]map[chan struct{}]bool{}}
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
		AddFunc: news.tell, UpdateFunc: func(_, object any) { news.tell(object) }, DeleteFunc: news.tell,
	})
	return news, err
}

func (n *servingNews) tell(object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	_, id, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for follower := range n.followers[id] {
		select {
		case follower <- struct{}{}:
		default: // it has not looked since it was last told
		}
	}
}

// FollowServing tells of changes of a serving, its deletion included, until leave is called. Changes that come faster than they are received are told as
// one. It tells nothing unless Run was called.
func (s *Store) FollowServing(id string) (changed <-chan struct{}, leave func()) {
	n, follower := s.news, make(chan struct{}, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.followers[id] == nil {
		n.followers[id] = map[chan struct{}]bool{}
	}
	n.followers[id][follower] = true
	return follower, sync.OnceFunc(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.followers[id], follower)
		if len(n.followers[id]) == 0 {
			delete(n.followers, id)
		}
	})
}
