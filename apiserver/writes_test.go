package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/berthd/berth/apiserver/store"
)

// TestWritesToALargeStore shows which requests get 507 when the store refuses new objects, and when
// it refuses changes, too.
func TestWritesToALargeStore(t *testing.T) {
	resolver := &request.RequestInfoFactory{
		APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
	}
	for ask, refused := range map[string]store.Write{
		"POST /api/v1/namespaces/default/pods":                        store.Creation,
		"POST /api/v1/namespaces/default/pods/a/binding":              store.Creation,
		"PUT /api/v1/namespaces/default/pods/a":                       store.Change,
		"PATCH /api/v1/namespaces/default/pods/a/status":              store.Change,
		"PUT /api/v1/namespaces/a/finalize":                           store.Change,
		"PATCH /api/v1/namespaces/default/pods/a?dryRun=All":          store.Deletion,
		"PATCH /api/v1/namespaces/default/pods/a?dryRun=":             store.Change,
		"POST /api/v1/namespaces/default/pods?dryRun=All&dryRun=no":   store.Creation,
		"POST /api/v1/namespaces/default/pods/a/eviction":             store.Deletion,
		"DELETE /api/v1/namespaces/default/pods/a":                    store.Deletion,
		"DELETE /api/v1/namespaces/default/pods":                      store.Deletion,
		"DELETE /api/v1/namespaces/default/pods?dryRun=All":           store.Deletion,
		"GET /api/v1/namespaces/default/pods":                         store.Deletion,
		"POST /api/v1/namespaces/default/pods/a/exec":                 store.Deletion,
		"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews": store.Deletion,
	} {
		for most := store.Creation; most < store.Deletion; most++ {
			room := func(w store.Write) error {
				if w <= most {
					return fmt.Errorf("%w: it says", store.ErrLimit)
				}
				return nil
			}
			method, path, _ := strings.Cut(ask, " ")
			r := httptest.NewRequest(method, path, nil)
			info, err := resolver.NewRequestInfo(r)
			if err != nil {
				t.Fatal(err)
			}
			answer, want := httptest.NewRecorder(), http.StatusOK
			if refused <= most {
				want = http.StatusInsufficientStorage
			}
			withRoom(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), room).
				ServeHTTP(answer, r.WithContext(request.WithRequestInfo(r.Context(), info)))
			if answer.Code != want {
				t.Errorf("%s while %d is refused: %d, want %d", ask, most, answer.Code, want)
			}
		}
	}
}
