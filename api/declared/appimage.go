package declared

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// PutAppImage creates the AppImage, or replaces its content. generation is the generation that a change is based on, 0
// for an AppImage that must not exist with other content; nil: any.
func (w Writer) PutAppImage(ctx context.Context, name string, spec kuscia.AppImageSpec,
	generation *int64) (result schema.PutDeclaredResult, err error) {
	err = failure.RetryOnConflict("AppImage "+name, func() error {
		stored, err := w.Home.GetAppImage(ctx, name)
		switch {
		case failure.Is(err, failure.NotFound):
			stored = &kuscia.AppImage{}
		case err != nil:
			return err
		case equality.Semantic.DeepEqual(stored.Spec, spec):
			result = schema.PutDeclaredResult{Name: name, Generation: stored.Generation}
			return nil
		}
		before, write := stored.Generation, w.Home.UpdateAppImage
		refused := checkBase("AppImage "+name, ", with other content: choose another name, or change it with "+
			"PUT /api/v1/appimages/"+name, generation, before)
		switch {
		case refused != nil && before == 0:
			return refused
		case before == 0:
			result = created(name)
			return w.Home.CreateAppImage(ctx, &kuscia.AppImage{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
		case refused != nil:
			write = w.Home.TryAppImage
		}
		stored.Spec = spec
		err = write(ctx, stored)
		// The API server fills in defaults, so that the content may be the stored one after all.
		result = schema.PutDeclaredResult{Name: name, Generation: stored.Generation, Changed: stored.Generation != before}
		if err == nil && result.Changed {
			err = refused
		}
		return err
	})
	return result, err
}
