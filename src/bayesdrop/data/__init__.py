"""Data sets, one file each, from `$BAYESDROP_DATA`, from the user's cache, or downloaded."""

from bayesdrop.data.amazon import AMAZON_DOMAINS, AmazonReviews, load_amazon
from bayesdrop.data.camvid import CAMVID_CLASSES, CAMVID_VOID, CamVid, load_camvid
from bayesdrop.data.cifar import CIFAR10, CIFAR10_CLASSES, load_cifar10
from bayesdrop.data.co2 import CO2Series, load_co2
from bayesdrop.data.files import DataNotFound, cache_folder, data_folder
from bayesdrop.data.gowalla import Gowalla, load_gowalla
from bayesdrop.data.implicit import ImplicitFeedback, split_by_users
from bayesdrop.data.mnist import MNIST, FashionMNIST, load_fashion_mnist, load_mnist
from bayesdrop.data.movielens import Ratings, load_movielens_1m, load_movielens_20m, load_movielens_100k
from bayesdrop.data.msd import Plays, load_msd
from bayesdrop.data.netflix import load_netflix
from bayesdrop.data.qspr import QSPR, load_qspr
from bayesdrop.data.registry import DATASETS, DataSet
from bayesdrop.data.solar import SolarSeries, load_solar
from bayesdrop.data.table import Split, Table, from_table
from bayesdrop.data.uci import UCI, load_uci

__all__ = [
    "AMAZON_DOMAINS",
    "CAMVID_CLASSES",
    "CAMVID_VOID",
    "CIFAR10",
    "CIFAR10_CLASSES",
    "DATASETS",
    "MNIST",
    "QSPR",
    "UCI",
    "AmazonReviews",
    "CO2Series",
    "CamVid",
    "DataNotFound",
    "DataSet",
    "FashionMNIST",
    "Gowalla",
    "ImplicitFeedback",
    "Plays",
    "Ratings",
    "SolarSeries",
    "Split",
    "Table",
    "cache_folder",
    "data_folder",
    "from_table",
    "load_amazon",
    "load_camvid",
    "load_cifar10",
    "load_co2",
    "load_fashion_mnist",
    "load_gowalla",
    "load_mnist",
    "load_movielens_1m",
    "load_movielens_20m",
    "load_movielens_100k",
    "load_msd",
    "load_netflix",
    "load_qspr",
    "load_solar",
    "load_uci",
    "split_by_users",
]
